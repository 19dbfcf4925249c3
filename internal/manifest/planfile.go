package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// PlanFile is the name of the plan in force within the data folder.
const PlanFile = "plan.json"

// ReadPlan reads the plan in force from the data folder; nil, without an error, if
// there is none yet. A file that is not a whole plan of a known format is an error
// and is left as it is: going on without it would forget deletions and absences.
func ReadPlan(dataDir string) (*plan.Plan, error) {
	path := filepath.Join(dataDir, PlanFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	p, err := plan.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// WritePlan makes p the plan in force, readable by its owner alone since it holds
// signing keys. After a crash the file is the former plan or p, never a part.
func WritePlan(dataDir string, p *plan.Plan) error {
	b, err := plan.Encode(p)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dataDir, PlanFile), b); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	return nil
}

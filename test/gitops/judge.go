package gitops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/doorstep-dev/doorstep/test/cluster"
)

// KStatus is what kstatus says of an object as the API server has it: InProgress, Current or Failed.
func KStatus(o runtime.Object) (status.Status, error) {
	u, err := plain(o)
	if err != nil {
		return "", err
	}
	result, err := status.Compute(u)
	if err != nil {
		return "", fmt.Errorf("kstatus of %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return result.Status, nil
}

// Health is what Argo CD shows of an object.
type Health struct {
	// Status is Healthy, Progressing, Degraded, Suspended, Missing or Unknown.
	Status string
	// Message is shown beside it.
	Message string
}

// ArgoHealth is what Argo CD says of an object as the API server has it, with the script of config/argocd/health for its
// kind. It is an error if Argo CD would not know what to make of the script's answer.
func ArgoHealth(o runtime.Object) (Health, error) {
	u, err := plain(o)
	if err != nil {
		return Health{}, err
	}
	path, err := ScriptPath(u.GetKind())
	if err != nil {
		return Health{}, err
	}
	script, err := os.ReadFile(path)
	if err != nil {
		return Health{}, fmt.Errorf("reading the health script: %w", err)
	}
	health, err := run(string(script), u.Object)
	if err != nil {
		return Health{}, fmt.Errorf("health of %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return health, nil
}

// ScriptPath is where the health script of a kind is.
func ScriptPath(kind string) (string, error) {
	root, err := cluster.Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "config", "argocd", "health", strings.ToLower(kind)+".lua"), nil
}

// plain is an object as JSON has it.
func plain(o runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u, nil
	}
	gvk, err := apiutil.GVKForObject(o, cluster.Scheme())
	if err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// scriptTime is what Argo CD lets a script take.
const scriptTime = time.Second

// run runs a script as Argo CD does where useOpenLibs is not set: with the object as obj, and of Lua's libraries only base,
// package and table. It leaves out the few harmless functions of os that Argo CD has.
func run(script string, object map[string]any) (Health, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTime)
	defer cancel()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	l.SetContext(ctx)
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(library.open), Protect: true}, lua.LString(library.name)); err != nil {
			return Health{}, err
		}
	}
	obj, err := valueOf(l, object)
	if err != nil {
		return Health{}, err
	}
	l.SetGlobal("obj", obj)
	if err := l.DoString(script); err != nil {
		return Health{}, err
	}
	answer, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return Health{}, fmt.Errorf("the script returns a %s, not a table", l.Get(-1).Type())
	}
	return healthOf(answer)
}

// healthOf reads the table that a script returns.
func healthOf(answer *lua.LTable) (Health, error) {
	var health Health
	var wrong []error
	answer.ForEach(func(k, v lua.LValue) {
		text, ok := v.(lua.LString)
		switch {
		case !ok:
			wrong = append(wrong, fmt.Errorf("%s is a %s, not a string", k, v.Type()))
		case k == lua.LString("status"):
			health.Status = string(text)
		case k == lua.LString("message"):
			health.Message = string(text)
		default:
			wrong = append(wrong, fmt.Errorf("the script returns %s, which Argo CD has no use for", k))
		}
	})
	switch health.Status {
	case "Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown":
	default:
		wrong = append(wrong, fmt.Errorf("the script returns status %q, which Argo CD does not know", health.Status))
	}
	return health, errors.Join(wrong...)
}

// valueOf is a part of an object as Lua has it.
func valueOf(l *lua.LState, v any) (lua.LValue, error) {
	switch v := v.(type) {
	case nil:
		return lua.LNil, nil
	case bool:
		return lua.LBool(v), nil
	case string:
		return lua.LString(v), nil
	case int64:
		return lua.LNumber(v), nil
	case float64:
		return lua.LNumber(v), nil
	case []any:
		list := l.CreateTable(len(v), 0)
		for _, item := range v {
			value, err := valueOf(l, item)
			if err != nil {
				return nil, err
			}
			list.Append(value)
		}
		return list, nil
	case map[string]any:
		table := l.CreateTable(0, len(v))
		for key, item := range v {
			value, err := valueOf(l, item)
			if err != nil {
				return nil, err
			}
			table.RawSetString(key, value)
		}
		return table, nil
	}
	return nil, fmt.Errorf("a %T is nothing that JSON has", v)
}

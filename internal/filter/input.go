package filter

import (
	"errors"
	"slices"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/doorstep-dev/doorstep/internal/event"
)

// Input is an event as filters see it. What is asked for first is decoded then, once. It is for one goroutine.
type Input struct {
	event *event.Event

	attributes *object

	located bool
	data    event.Data

	decoded   bool
	value     any
	dataError error

	// What remains to the evaluation that is under way, see meter.go.
	left, clock int
	until       time.Time
}

// NewInput costs next to nothing: the event is only read when a filter asks.
func NewInput(e *event.Event) *Input { return &Input{event: e} }

const eventVariable = "event"

// ResolveName gives the one variable (interpreter.Activation).
func (in *Input) ResolveName(name string) (any, bool) {
	if name == eventVariable {
		return in, true
	}
	return nil, false
}

// Parent is none (interpreter.Activation).
func (in *Input) Parent() cel.Activation { return nil }

func (in *Input) locate() event.Data {
	if !in.located {
		in.located, in.data = true, in.event.Data()
	}
	return in.data
}

func (in *Input) decode() (any, error) {
	if !in.decoded {
		in.decoded = true
		in.value, in.dataError = decode(in.locate())
	}
	return in.value, in.dataError
}

// field is one member of event.
type field struct {
	name string
	kind *cel.Type
	set  func(*Input) bool
	get  func(*Input) (any, error)
}

var errNoTime = errors.New("event.time is not set")

// fields are all members of event.
var fields = []field{
	{
		"id", cel.StringType,
		func(in *Input) bool { return true },
		func(in *Input) (any, error) { return in.event.ID, nil },
	},
	{
		"type", cel.StringType,
		func(in *Input) bool { return true },
		func(in *Input) (any, error) { return in.event.Type, nil },
	},
	{
		"source", cel.StringType,
		func(in *Input) bool { return in.event.Source != "" },
		func(in *Input) (any, error) { return in.event.Source, nil },
	},
	{
		"time", cel.TimestampType,
		func(in *Input) bool { return !in.event.Time.IsZero() },
		func(in *Input) (any, error) {
			if in.event.Time.IsZero() {
				return nil, errNoTime
			}
			return in.event.Time, nil
		},
	},
	{
		"attributes", cel.MapType(cel.StringType, cel.StringType),
		func(in *Input) bool { return len(in.event.Attributes) > 0 },
		func(in *Input) (any, error) {
			if in.attributes == nil {
				members := make(map[string]any, len(in.event.Attributes))
				for _, a := range in.event.Attributes {
					members[a.Name] = a.Value
				}
				in.attributes = newObject(members)
			}
			return in.attributes, nil
		},
	},
	{
		"data", cel.DynType,
		func(in *Input) bool { return !in.locate().Null() },
		(*Input).decode,
	},
}

// eventTypeName is what CEL calls the type of event.
const eventTypeName = "doorstep.Event"

// provider tells CEL the members of event beside its own types.
type provider struct {
	*types.Registry
	fields map[string]*types.FieldType
}

func newProvider() (*provider, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	p := &provider{Registry: registry, fields: make(map[string]*types.FieldType, len(fields))}
	for _, f := range fields {
		p.fields[f.name] = &types.FieldType{
			Type: f.kind,
			IsSet: func(target any) bool {
				in, ok := target.(*Input)
				return ok && f.set(in)
			},
			GetFrom: func(target any) (any, error) {
				in, ok := target.(*Input)
				if !ok {
					return nil, errors.New("not an event")
				}
				return f.get(in)
			},
		}
	}
	return p, nil
}

// FindStructType knows event's type beside those of CEL.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if name == eventTypeName {
		return types.NewTypeTypeWithParam(types.NewObjectType(eventTypeName)), true
	}
	return p.Registry.FindStructType(name)
}

// FindStructFieldNames lists the members of event.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if name == eventTypeName {
		var names []string
		for _, f := range fields {
			names = append(names, f.name)
		}
		slices.Sort(names)
		return names, true
	}
	return p.Registry.FindStructFieldNames(name)
}

// FindStructFieldType knows the members of event.
func (p *provider) FindStructFieldType(name, member string) (*types.FieldType, bool) {
	if name == eventTypeName {
		f, ok := p.fields[member]
		return f, ok
	}
	return p.Registry.FindStructFieldType(name, member)
}

// NewValue makes no events.
func (p *provider) NewValue(name string, members map[string]ref.Val) ref.Val {
	if name == eventTypeName {
		return types.NewErr("an event can't be made in a filter")
	}
	return p.Registry.NewValue(name, members)
}

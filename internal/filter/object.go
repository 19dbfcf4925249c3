package filter

import (
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// object is a map of an event (traits.Mapper). It differs from CEL's own in how loops go over it: by name, so that the
// same event gives the same answer each time, and without a copy of all names for each loop that begins, which the meter
// would not see where the loop ends at once. It is for one goroutine, as the Input that it belongs to.
type object struct {
	members map[string]any
	names   []string // sorted; nil until a loop asks for them
}

func newObject(members map[string]any) *object { return &object{members: members} }

// plain is CEL's own map of the same members, for what is rare, or dear anyhow.
func (o *object) plain() traits.Mapper {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, o.members)
}

// Find gives a member.
func (o *object) Find(name ref.Val) (ref.Val, bool) {
	text, ok := name.(types.String)
	if !ok {
		return nil, false
	}
	member, ok := o.members[string(text)]
	if !ok {
		return nil, false
	}
	return types.DefaultTypeAdapter.NativeToValue(member), true
}

// Get gives a member that must be there.
func (o *object) Get(name ref.Val) ref.Val {
	if member, ok := o.Find(name); ok {
		return member
	}
	return types.ValOrErr(name, "no such key: %v", name)
}

// Contains looks for a name.
func (o *object) Contains(name ref.Val) ref.Val {
	_, found := o.Find(name)
	return types.Bool(found)
}

// Size is how many members there are.
func (o *object) Size() ref.Val { return types.Int(len(o.members)) }

// Type is that of maps.
func (o *object) Type() ref.Type { return types.MapType }

// Value is the members.
func (o *object) Value() any { return o.members }

// Equal compares as CEL does.
func (o *object) Equal(other ref.Val) ref.Val { return o.plain().Equal(other) }

// ConvertToNative converts as CEL does.
func (o *object) ConvertToNative(t reflect.Type) (any, error) { return o.plain().ConvertToNative(t) }

// ConvertToType converts as CEL does.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	if t == types.MapType {
		return o
	}
	return o.plain().ConvertToType(t)
}

// Iterator goes over the names of the members.
func (o *object) Iterator() traits.Iterator {
	if o.names == nil && len(o.members) > 0 {
		o.names = slices.Sorted(maps.Keys(o.members))
	}
	return &nameIterator{names: o.names}
}

// nameIterator is a value of CEL's only because an iterator must be one.
type nameIterator struct {
	ref.Val
	names []string
}

// HasNext reports whether there is another name.
func (i *nameIterator) HasNext() ref.Val { return types.Bool(len(i.names) > 0) }

// Next is that name.
func (i *nameIterator) Next() ref.Val {
	name := i.names[0]
	i.names = i.names[1:]
	return types.String(name)
}

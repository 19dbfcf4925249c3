package filter

import (
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// prices says what each call costs, in place of CEL's own list: that one takes many a call for free whose time grows with
// its operands (size of a text, the comparison of two nested lists).
type prices struct {
	// patterns gives the size of each pattern of matches().
	patterns map[string]int
}

// textPerUnit is how many bytes of text cost as much as one look at a value.
const textPerUnit = 10

// CallCost is asked after each call (interpreter.ActualCostEstimator).
func (p prices) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	cost := uint64(1)
	switch function {
	case operators.Equals, operators.NotEquals:
		// No more is compared than the lighter one weighs.
		cost += min(weight(args[0], CostLimit), weight(args[1], CostLimit))
	case operators.In:
		if _, isMap := args[1].(traits.Mapper); !isMap {
			cost += weight(args[1], CostLimit)
		}
	case operators.Add:
		if _, own := args[0].(traits.MutableLister); !own { // of filter(), which appends in place
			cost += extent(args[0]) + extent(args[1])
		}
	case matchesName:
		text, _ := args[0].(types.String)
		pattern, _ := args[1].(types.String)
		cost += matchSteps(len(text), p.patterns[string(pattern)]) / stepsPerUnit
	default:
		for _, a := range args {
			cost += extent(a)
		}
		cost += extent(result)
	}
	return &cost
}

// extent is what it costs to go along a text, or over a list without a look into its elements.
func extent(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v)) / textPerUnit
	case types.Bytes:
		return uint64(len(v)) / textPerUnit
	case traits.Lister:
		if n, ok := v.Size().(types.Int); ok {
			return uint64(n)
		}
	}
	return 0
}

// weight is what it costs to look at a value with everything in it, counted up to limit.
func weight(v ref.Val, limit uint64) uint64 {
	total := uint64(1)
	switch v := v.(type) {
	case types.String, types.Bytes:
		total += extent(v)
	case *types.Optional:
		if v.HasValue() {
			total += weight(v.GetValue(), limit)
		}
	case traits.Mapper:
		for it := v.Iterator(); total < limit && it.HasNext() == types.True; {
			key := it.Next()
			value, _ := v.Find(key)
			total += extent(key) + weight(value, limit-total)
		}
	case traits.Lister:
		for it := v.Iterator(); total < limit && it.HasNext() == types.True; {
			total += weight(it.Next(), limit-total)
		}
	}
	return total
}

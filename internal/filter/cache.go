package filter

import "sync"

// cacheSize is how many expressions of a generation are remembered.
const cacheSize = 10_000

// compiled is shared by all who compile: a plan is compiled anew at each change of anything, and most of its expressions
// stay as they were.
var compiled = cache{compile: compile}

// cache remembers what expressions became, or why they became nothing. It holds at most two generations: what was asked
// for in the present one, and in the one before.
type cache struct {
	compile func(string) (*Filter, error)

	mu          sync.Mutex
	young, aged map[string]*verdict
}

// verdict is the result of one compilation, which is made once.
type verdict struct {
	once   sync.Once
	filter *Filter
	err    error
}

func (c *cache) get(expression string) (*Filter, error) {
	v := c.find(expression)
	v.once.Do(func() { v.filter, v.err = c.compile(expression) })
	return v.filter, v.err
}

func (c *cache) find(expression string) *verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.young[expression]; v != nil {
		return v
	}
	v := c.aged[expression]
	if v == nil {
		v = new(verdict)
	}
	if c.young == nil || len(c.young) >= cacheSize {
		c.young, c.aged = make(map[string]*verdict), c.young
	}
	c.young[expression] = v
	return v
}

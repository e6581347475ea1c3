package celbudget

import (
	"container/list"
	"sync"

	"github.com/google/cel-go/cel"
)

// cacheWeight bounds the cached programs. That of a short expression takes some 30 kB of memory, and that of a very long one about a
// megabyte; together they take at most about 60 MB.
const (
	cacheWeight = 512 << 10 // bytes of expressions
	baseWeight  = 256
)

// programs has the most recently used programs of this process. Callers get a program for each use and do not keep it, so that memory
// does not grow with the number of stored expressions.
var programs = newCache(cacheWeight)

type programKey struct{ environment, expression string }

func (k programKey) weight() int { return baseWeight + len(k.expression) }

// cached is a program, or why there is none.
type cached struct {
	key     programKey
	program cel.Program
	err     error
}

// cache keeps what was used last.
type cache struct {
	mu       sync.Mutex
	left     int
	used     *list.List // of *cached, the last used first
	elements map[programKey]*list.Element
}

func newCache(weight int) *cache {
	return &cache{left: weight, used: list.New(), elements: map[programKey]*list.Element{}}
}

func (c *cache) get(key programKey, compile func() (cel.Program, error)) (cel.Program, error) {
	if found := c.find(key); found != nil {
		return found.program, found.err
	}
	program, err := compile()
	c.add(&cached{key, program, err})
	return program, err
}

func (c *cache) find(key programKey) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.elements[key]
	if element == nil {
		return nil
	}
	c.used.MoveToFront(element)
	return element.Value.(*cached)
}

func (c *cache) add(added *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.elements[added.key] != nil {
		return // another goroutine was as fast
	}
	c.elements[added.key] = c.used.PushFront(added)
	for c.left -= added.key.weight(); c.left < 0; {
		oldest := c.used.Remove(c.used.Back()).(*cached)
		delete(c.elements, oldest.key)
		c.left += oldest.key.weight()
	}
}

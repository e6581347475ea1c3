package controlplane

import (
	"cmp"
	"errors"
	"net/http"
	"path"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/healthz"
)

// problem is what keeps from being done what is tried again and again, as far as that is known.
type problem struct{ text atomic.Pointer[string] }

// report takes in how an attempt has ended, and says whether that is a failure that was not known before.
func (p *problem) report(err error) (isNew bool) {
	if err == nil {
		p.text.Store(nil)
		return false
	}
	text := err.Error()
	known := p.text.Swap(&text)
	return known == nil || *known != text
}

func (p *problem) err() error {
	if text := p.text.Load(); text != nil {
		return errors.New(*text)
	}
	return nil
}

// check is a part of /readyz that fails those alone who ask for it by its name: the hub is ready all the same.
func (p *problem) check(name string) healthz.HealthChecker {
	return healthz.NamedCheck(name, func(r *http.Request) error {
		if path.Base(r.URL.Path) != name {
			return nil
		}
		return p.err()
	})
}

// gate is a part of /readyz that opens once.
type gate struct {
	done atomic.Bool
	// problem is what keeps it closed.
	problem problem
}

func (g *gate) open() { g.done.Store(true) }

func (g *gate) check(name string) healthz.HealthChecker {
	return healthz.NamedCheck(name, func(*http.Request) error {
		if g.done.Load() {
			return nil
		}
		return cmp.Or(g.problem.err(), errors.New("not yet"))
	})
}

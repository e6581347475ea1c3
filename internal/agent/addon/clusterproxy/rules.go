package clusterproxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
)

// Keys of fleet.ConfigMapHubAccess.
const (
	// keyRules has the access.Rules.
	keyRules = "rules.yaml"
	// keyServiceCA has CAs that sign certificates of services, besides those of the cluster. It may be missing.
	keyServiceCA = "service-ca.crt"
	// keyOIDC has the oidc.Config, and keyOIDCCA the CAs of the issuer. They may be missing.
	keyOIDC   = "oidc.yaml"
	keyOIDCCA = "oidc-ca.crt"
)

// rules are those of the cluster at the moment.
type rules struct {
	clock   clock.Clock
	current atomic.Pointer[ruling]

	mu sync.Mutex
	// open is what the rules have let through and what is not over.
	open map[*followed]struct{}
}

// followed is something that goes on while its check passes.
type followed struct {
	check func() error
	end   context.CancelCauseFunc
}

type ruling struct {
	all     bool // are let through
	allowed access.Rules
	ca      []byte
	issuer  *issuer // of tokens of users of the cluster; nil if there is none
	err     error   // for which nobody is
}

// issuer is one with what it has been read from.
type issuer struct {
	*oidc.Authenticator
	text, ca string
}

// set reads the rules; nil means that the cluster has none. It ends what is open that they do not allow.
func (r *rules) set(configMap *corev1.ConfigMap) {
	now := &ruling{}
	if configMap == nil {
		now.all = true
	} else if now.allowed, now.err = parseRules(configMap); now.err != nil {
		now.err = fmt.Errorf("ConfigMap %s/%s has no rules that can be read: %w", configMap.Namespace, configMap.Name, now.err)
	} else if now.ca, now.err = parseServiceCA(configMap); now.err != nil {
		now.err = fmt.Errorf("ConfigMap %s/%s: %w", configMap.Namespace, configMap.Name, now.err)
	} else if now.issuer, now.err = r.parseIssuer(configMap); now.err != nil {
		now.err = fmt.Errorf("ConfigMap %s/%s: %w", configMap.Namespace, configMap.Name, now.err)
	}
	r.current.Store(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.open {
		if err := one.check(); err != nil {
			one.end(err)
		}
	}
}

// follow returns a context for what goes on while the check passes, which runs now and whenever the rules change. What the check says
// is the cause of its end. The function that is returned is to be called in the end.
func (r *rules) follow(ctx context.Context, check func() error) (context.Context, context.CancelFunc, error) {
	ctx, end := context.WithCancelCause(ctx)
	one := &followed{check: check, end: end}
	r.mu.Lock()
	if r.open == nil {
		r.open = map[*followed]struct{}{}
	}
	r.open[one] = struct{}{}
	r.mu.Unlock()
	forget := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.open, one)
		end(nil)
	}
	// Only now: a change of the rules after this finds it.
	if err := check(); err != nil {
		forget()
		return nil, nil, err
	}
	return ctx, forget, nil
}

// orNotAllowed is why a request has ended: that the rules do not allow it any more or its token has expired, or else the error.
func orNotAllowed(ctx context.Context, err error) error {
	var refused *apierrors.StatusError
	if errors.As(context.Cause(ctx), &refused) {
		return refused
	}
	return err
}

// parseIssuer keeps the issuer that there is, with what is known of it, unless the ConfigMap has another one.
func (r *rules) parseIssuer(configMap *corev1.ConfigMap) (*issuer, error) {
	text, found := configMap.Data[keyOIDC]
	ca := configMap.Data[keyOIDCCA]
	if !found {
		return nil, nil
	}
	if before := r.issuer(); before != nil && before.text == text && before.ca == ca {
		return before, nil
	}
	config, err := oidc.Parse(text, []byte(ca))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyOIDC, err)
	}
	return &issuer{Authenticator: oidc.New(config, r.clock), text: text, ca: ca}, nil
}

// issuer is that of the tokens of users of the cluster, or nil.
func (r *rules) issuer() *issuer {
	if current := r.current.Load(); current != nil {
		return current.issuer
	}
	return nil
}

func parseServiceCA(configMap *corev1.ConfigMap) ([]byte, error) {
	text, found := configMap.Data[keyServiceCA]
	if !found {
		return nil, nil
	}
	if _, err := cert.ParseCertsPEM([]byte(text)); err != nil {
		return nil, fmt.Errorf("%s is not one or more certificates in PEM: %w", keyServiceCA, err)
	}
	return []byte(text), nil
}

// serviceCA are CAs, in PEM, that the cluster trusts for its services.
func (r *rules) serviceCA() []byte {
	if current := r.current.Load(); current != nil {
		return current.ca
	}
	return nil
}

func parseRules(configMap *corev1.ConfigMap) (access.Rules, error) {
	text, found := configMap.Data[keyRules]
	if !found {
		return nil, fmt.Errorf("it has no key %s; to let nobody in, set it to [], and to let in everybody whom RBAC allows, to [{}]", keyRules)
	}
	var parsed access.Rules
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
		return nil, fmt.Errorf("%s: %w", keyRules, err)
	}
	return parsed, nil
}

func (r *rules) problem() error {
	if current := r.current.Load(); current != nil {
		return current.err
	}
	return nil
}

// check says why a request is not let through.
func (r *rules) check(user access.User, request access.Request) error {
	current, err := r.known()
	if err == nil && !current.all && !current.allowed.Allow(user, request) {
		err = notAllowed(user)
	}
	return err
}

// checkConnection says why a connection is not let through in which whoever has a credential of the cluster may request anything: only
// rules that let nobody in concern it.
func (r *rules) checkConnection() error {
	current, err := r.known()
	if err == nil && !current.all && len(current.allowed) == 0 {
		err = fmt.Errorf("the managed cluster lets nobody in: %s of its ConfigMap %s has no rule", keyRules, fleet.ConfigMapHubAccess)
	}
	return err
}

// known are the rules, if they are known and can be read.
func (r *rules) known() (*ruling, error) {
	current := r.current.Load()
	if current == nil {
		return nil, errors.New("the agent does not know yet what the cluster lets users of the hub do")
	}
	return current, current.err
}

func notAllowed(user access.User) error {
	return fmt.Errorf("the managed cluster does not let user %q of the hub do that; its ConfigMap %s says what it lets whom do", user.Name,
		fleet.ConfigMapHubAccess)
}

// admit says why a user may not even use discovery and self-reviews, and otherwise what narrows what it may do, if anything does.
func (r *rules) admit(user access.User) (narrowed string, err error) {
	current := r.current.Load()
	if current == nil || current.err != nil || current.all {
		return "", r.check(user, access.Request{})
	}
	about := current.allowed.For(user)
	switch {
	case len(about) == 0:
		return "", notAllowed(user)
	case about.Narrows():
		return about.String(), nil
	}
	return "", nil
}

// Package clitest runs the command line in tests: against a fake hub, by a clock that stands still, and with a --timeout that is over
// when a test says so.
package clitest

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/cli"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/options"
)

// Hub is a fake hub that commands of a test are run with.
type Hub struct {
	*fakehub.Hub
	// File is the kubeconfig that leads to it.
	File string
}

// NewHub returns a hub without objects, which ends with the test.
func NewHub(t *testing.T) Hub {
	t.Helper()
	h := Hub{fakehub.New(t), filepath.Join(t.TempDir(), "kubeconfig")}
	h.Hub.Kubeconfig(t, h.File, "hub")
	return h
}

// Result is what a command printed and how it ended.
type Result struct {
	Out, ErrOut string
	Code        int
}

// Run runs a command with the hub.
func (h Hub) Run(t *testing.T, stdin string, args ...string) Result {
	t.Helper()
	return Run(t.Context(), stdin, append([]string{"--kubeconfig", h.File}, args...)...)
}

// Follow runs a command that a result advises, written there after "capstan", with pairs of words and what a user puts in for them. A word
// that begins with another one comes before it.
func (h Hub) Follow(t *testing.T, result Result, advice string, pairs ...string) Result {
	t.Helper()
	if !strings.Contains(result.Out+result.ErrOut, "capstan "+advice) {
		t.Errorf("%q is not advised in:\n%s%s", advice, result.Out, result.ErrOut)
	}
	return h.Run(t, "", strings.Fields(strings.NewReplacer(pairs...).Replace(advice))...)
}

// deletedAt is where a hub or a cluster has the objects of the kinds that commands of kubectl delete, with NAMESPACE for that.
var deletedAt = map[string]string{
	"appliedmanifestworks":   "/apis/work.open-cluster-management.io/v1/appliedmanifestworks",
	"clusterrole":            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"clusterrolebinding":     "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"crd":                    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	"managedcluster":         ClustersPath,
	"manifestworkreplicaset": "/apis/work.open-cluster-management.io/v1alpha1/namespaces/NAMESPACE/manifestworkreplicasets",
	"namespace":              "/api/v1/namespaces",
}

// DeleteAs deletes what a result advises to delete, written there after "kubectl", with pairs as for [Hub.Follow].
func (h Hub) DeleteAs(t *testing.T, result Result, advice string, pairs ...string) {
	t.Helper()
	if !strings.Contains(result.Out+result.ErrOut, "kubectl "+advice) {
		t.Errorf("%q is not advised in:\n%s%s", advice, result.Out, result.ErrOut)
	}
	command, namespace := strings.NewReplacer(pairs...).Replace(advice), ""
	if in, found := strings.CutPrefix(command, "-n "); found {
		namespace, command, _ = strings.Cut(in, " ")
	}
	kind, names, _ := strings.Cut(strings.TrimPrefix(command, "delete "), " ")
	if !strings.HasPrefix(command, "delete ") || deletedAt[kind] == "" {
		t.Fatalf("kubectl %s deletes nothing that the test knows", advice)
	}
	for _, name := range strings.Fields(names) {
		h.Remove(t, strings.Replace(deletedAt[kind], "NAMESPACE", namespace, 1)+"/"+name)
	}
}

// Run runs a command for which no time passes.
func Run(ctx context.Context, stdin string, args ...string) Result {
	return RunUntil(ctx, nil, stdin, args...)
}

// RunUntil runs a command for which no time passes: what does not depend on how long something takes is the same on a machine that is slow.
// The time of --timeout is over when the channel is closed; without one, it passes as always.
func RunUntil(ctx context.Context, over <-chan struct{}, stdin string, args ...string) Result {
	var out, errOut bytes.Buffer
	global := options.New(strings.NewReader(stdin), &out, &errOut)
	global.Clock = clocktesting.NewFakeClock(time.Now())
	if over != nil {
		global.WithTimeout = endsWhenClosed(over)
	}
	code := cli.Run(ctx, global, args)
	return Result{out.String(), errOut.String(), code}
}

// TimesOut runs a command whose --timeout is over once it watches a collection: it has then seen what is missing.
func (h Hub) TimesOut(t *testing.T, collection, stdin string, args ...string) Result {
	t.Helper()
	seen := h.Watches(collection)
	return TimesOutAfter(t, func(ctx context.Context) { _ = h.AwaitWatches(ctx, collection, seen+1) }, stdin,
		append([]string{"--kubeconfig", h.File}, args...)...)
}

// Closed waits until a channel is closed.
func Closed(channel <-chan struct{}) func(ctx context.Context) {
	return func(ctx context.Context) {
		select {
		case <-channel:
		case <-ctx.Done():
		}
	}
}

// TimesOutAfter runs a command whose --timeout is over when the function returns, which waits for something that the command does.
func TimesOutAfter(t *testing.T, waits func(ctx context.Context), stdin string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		waits(ctx)
	}()
	return RunUntil(t.Context(), over, stdin, args...)
}

// Succeeds fails the test unless the command did what it was to and printed some words.
func (r Result) Succeeds(t *testing.T, words ...string) {
	t.Helper()
	if r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.ErrOut)
	}
	for _, word := range words {
		if !strings.Contains(r.Out, word) {
			t.Errorf("%q is missing in:\n%s", word, r.Out)
		}
	}
}

// Fails fails the test unless the command failed and said some words.
func (r Result) Fails(t *testing.T, words ...string) {
	t.Helper()
	if r.Code != 1 {
		t.Errorf("exit code %d, want 1", r.Code)
	}
	if strings.Contains(r.ErrOut, "Usage:") {
		t.Errorf("the usage buries the error:\n%s", r.ErrOut)
	}
	for _, word := range words {
		if !strings.Contains(r.ErrOut, word) {
			t.Errorf("%q is missing in: %s", word, r.ErrOut)
		}
	}
}

// endsWhenClosed makes contexts whose deadline has come when the channel is closed.
func endsWhenClosed(over <-chan struct{}) options.TimeoutFunc {
	return func(parent context.Context, _ time.Duration, cause error) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(parent)
		limited := &limitedContext{Context: ctx, done: make(chan struct{})}
		go func() {
			defer close(limited.done)
			select {
			case <-over:
				limited.expired = true
				cancel(cause)
			case <-ctx.Done():
			}
		}()
		return limited, func() { cancel(context.Canceled) }
	}
}

// limitedContext ends as one with a deadline does.
type limitedContext struct {
	context.Context

	done    chan struct{}
	expired bool
}

// Done is closed at the deadline, or when the context is canceled.
func (c *limitedContext) Done() <-chan struct{} { return c.done }

// Err distinguishes the deadline from a cancellation.
func (c *limitedContext) Err() error {
	select {
	case <-c.done:
	default:
		return nil
	}
	if c.expired {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

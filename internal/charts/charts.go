// Package charts renders Helm charts, and installs them in a cluster, with Helm's library. Releases are kept as Helm keeps them, so that a
// helm program can go on with what is installed here, and the other way round.
package charts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
)

// ErrNotInstalled says that there is no such release.
var ErrNotInstalled = errors.New("is not installed")

// Releases are those in a namespace of a cluster.
type Releases struct {
	config    *action.Configuration
	namespace string
}

// In returns the releases in a namespace of the cluster that a context of the kubeconfig in KUBECONFIG leads to. Nothing is sent yet.
func In(kubeContext, namespace string) (*Releases, error) {
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	const inSecrets = "secret"
	if err := config.Init(access{kubeContext, namespace}, namespace, inSecrets); err != nil {
		return nil, fmt.Errorf("prepare Helm: %w", err)
	}
	return &Releases{config, namespace}, nil
}

// exists tells whether there is a release, whether or not it came to its end.
func (r *Releases) exists(name string) (bool, error) {
	revisions, err := r.history(name)
	return len(revisions) > 0, err
}

// history are the revisions of a release; none if there is no such release.
func (r *Releases) history(name string) ([]release.Releaser, error) {
	revisions, err := r.config.Releases.History(name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for release %s in namespace %s: %w", name, r.namespace, err)
	}
	return revisions, nil
}

// failInterrupted has the last revision of a release failed if it is pending: a run that was killed has left it so, and Helm would refuse
// to go on. A run that is going on at the same time applies the same objects.
func (r *Releases) failInterrupted(name string) error {
	last, err := r.config.Releases.Last(name)
	if err != nil {
		return fmt.Errorf("read the last revision of release %s in namespace %s: %w", name, r.namespace, err)
	}
	revision, ok := last.(*releasev1.Release)
	if !ok || !revision.Info.Status.IsPending() {
		return nil
	}
	failed, info := *revision, *revision.Info
	failed.Info = &info
	failed.SetStatus(common.StatusFailed, fmt.Sprintf("Interrupted as %s", revision.Info.Status))
	if err := r.config.Releases.Update(&failed); err != nil {
		return fmt.Errorf("mark revision %d of release %s in namespace %s as failed: %w", revision.Version, name, r.namespace, err)
	}
	return nil
}

// inMemory has the same release, of which nothing is written to the cluster.
func (r *Releases) inMemory(name string) (*Releases, error) {
	revisions, err := r.history(name)
	if err != nil {
		return nil, err
	}
	memory := driver.NewMemory()
	memory.SetNamespace(r.namespace)
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	config.RESTClientGetter, config.KubeClient, config.Capabilities = r.config.RESTClientGetter, r.config.KubeClient, r.config.Capabilities
	config.Releases = storage.Init(memory)
	for _, revision := range revisions {
		if err := config.Releases.Create(revision); err != nil {
			return nil, fmt.Errorf("copy release %s in namespace %s: %w", name, r.namespace, err)
		}
	}
	return &Releases{config, r.namespace}, nil
}

// Render returns what Install would apply.
func (r *Releases) Render(ctx context.Context, name string, of *chart.Chart) (string, error) {
	exists, err := r.exists(name)
	if err != nil {
		return "", err
	}
	var rendered release.Releaser
	if exists {
		rendered, err = r.renderUpgrade(ctx, name, of)
	} else {
		rendered, err = r.install(ctx, name, of, false, action.DryRunServer)
	}
	return manifestsOf(of, rendered, err)
}

// renderUpgrade renders an upgrade. An interrupted revision is marked as failed only in memory.
func (r *Releases) renderUpgrade(ctx context.Context, name string, of *chart.Chart) (release.Releaser, error) {
	copied, err := r.inMemory(name)
	if err != nil {
		return nil, err
	}
	if err := copied.failInterrupted(name); err != nil {
		return nil, err
	}
	return copied.upgrade(ctx, name, of, action.DryRunServer)
}

// manifestsOf are the objects of a release that Helm rendered, or the error that it ended with.
func manifestsOf(of *chart.Chart, rendered release.Releaser, err error) (string, error) {
	if err != nil {
		return "", fmt.Errorf("render chart %s: %w", of.Name(), err)
	}
	manifests, ok := rendered.(*releasev1.Release)
	if !ok {
		return "", fmt.Errorf("render chart %s: Helm made a %T of it", of.Name(), rendered)
	}
	var all strings.Builder
	for _, crd := range of.CRDObjects() {
		writeDocument(&all, string(crd.File.Data))
	}
	writeDocument(&all, manifests.Manifest)
	for _, hook := range manifests.Hooks {
		writeDocument(&all, hook.Manifest)
	}
	return all.String(), nil
}

func writeDocument(to *strings.Builder, text string) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	if !strings.HasPrefix(text, "---") {
		to.WriteString("---\n")
	}
	to.WriteString(text + "\n")
}

// Install makes a release of a chart, or upgrades the one there is and keeps the values that it was made with. One of which a run was
// interrupted is upgraded, too.
func (r *Releases) Install(ctx context.Context, name string, of *chart.Chart, createNamespace bool) error {
	exists, err := r.exists(name)
	if err != nil {
		return err
	}
	if exists {
		if err := r.failInterrupted(name); err != nil {
			return err
		}
		_, err = r.upgrade(ctx, name, of, action.DryRunNone)
	} else {
		_, err = r.install(ctx, name, of, createNamespace, action.DryRunNone)
	}
	if err != nil {
		return fmt.Errorf("install chart %s as release %s in namespace %s: %w", of.Name(), name, r.namespace, err)
	}
	return nil
}

func (r *Releases) install(ctx context.Context, name string, of *chart.Chart, createNamespace bool,
	dryRun action.DryRunStrategy) (release.Releaser, error) {
	install := action.NewInstall(r.config)
	install.ReleaseName, install.Namespace, install.CreateNamespace = name, r.namespace, createNamespace
	install.DryRunStrategy, install.WaitStrategy, install.Timeout = dryRun, kube.HookOnlyStrategy, remaining(ctx)
	return install.RunWithContext(ctx, of, map[string]any{})
}

func (r *Releases) upgrade(ctx context.Context, name string, of *chart.Chart,
	dryRun action.DryRunStrategy) (release.Releaser, error) {
	upgrade := action.NewUpgrade(r.config)
	upgrade.ResetThenReuseValues = true
	upgrade.Namespace = r.namespace
	upgrade.DryRunStrategy, upgrade.WaitStrategy, upgrade.Timeout = dryRun, kube.HookOnlyStrategy, remaining(ctx)
	return upgrade.RunWithContext(ctx, name, of, map[string]any{})
}

// Uninstall deletes a release and what it consists of. It fails with ErrNotInstalled if there is none.
func (r *Releases) Uninstall(ctx context.Context, name string) error {
	exists, err := r.exists(name)
	if err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("release %s %w in namespace %s", name, ErrNotInstalled, r.namespace)
	}
	uninstall := action.NewUninstall(r.config)
	uninstall.WaitStrategy, uninstall.Timeout = kube.HookOnlyStrategy, remaining(ctx)
	if _, err := uninstall.Run(name); err != nil {
		return fmt.Errorf("uninstall release %s in namespace %s: %w", name, r.namespace, err)
	}
	return nil
}

// remaining is how long Helm may wait for a hook.
func remaining(ctx context.Context) time.Duration {
	deadline, limited := ctx.Deadline()
	if !limited {
		return time.Hour
	}
	return time.Until(deadline)
}

package apply

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/apply/crdversion"
	"github.com/capstan-io/capstan/internal/apply/stored"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// CRDs is the kind of the definitions. They are never pruned: they hold what users have stored.
var CRDs = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// ErrCRDsForbidden says that CustomResourceDefinitions may not be read, so that they cannot be installed either.
var ErrCRDsForbidden = errors.New("it is not permitted to look at CustomResourceDefinitions")

// NewCRDClient returns a client for [InstallCRD]. It runs discovery for other kinds only if objects of a definition are to be migrated.
func NewCRDClient(config *rest.Config) (client.WithWatch, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	defined, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return nil, err
	}
	definitions := meta.NewDefaultRESTMapper(nil)
	definitions.Add(CRDs, meta.RESTScopeRoot)
	scheme := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	return client.NewWithWatch(config, client.Options{HTTPClient: http, Scheme: scheme,
		Mapper: meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{definitions, defined}}})
}

// InstallCRD creates a definition that belongs to no installation, or brings one that is there up to date, for a program of that version.
// It sets the definition to what the cluster has then, established or not. One stays as it is if it is of a newer version or release, if
// its group is one of Kubernetes itself, as others may have a newer one, or if it may not be changed. The error is ErrCRDsForbidden if
// definitions may not be read.
//
// It creates and updates, and does not apply as package serverside does: that would take fields from a chart or an operator that applies
// the same definition as part of an installation. With [Cluster.ApplyCRDs] it shares what keeps newer ones, crdversion, and what migrates
// objects, stored.
func InstallCRD(ctx context.Context, cluster client.Client, crd *apiextensionsv1.CustomResourceDefinition, version string) error {
	desired := crd.DeepCopy()
	desired.ResourceVersion = "" // of one that was installed before
	crdversion.Set(desired, version)
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(desired) // as the API server does, to find out what differs
	return retry.OnRace(func() error {
		live := &apiextensionsv1.CustomResourceDefinition{}
		err := cluster.Get(ctx, client.ObjectKeyFromObject(desired), live)
		switch {
		case apierrors.IsForbidden(err):
			return ErrCRDsForbidden
		case apierrors.IsNotFound(err):
			desired.DeepCopyInto(live)
			err = cluster.Create(ctx, live)
		case err == nil && !apihelpers.IsProtectedCommunityGroup(desired.Spec.Group) && !isNewer(ctx, live, version):
			err = update(ctx, cluster, live, desired, version)
		}
		if err != nil {
			return err
		}
		*crd = *live
		return nil
	})
}

// update writes a definition that is on the cluster if it differs from what it should be.
func update(ctx context.Context, cluster client.Client, live, desired *apiextensionsv1.CustomResourceDefinition, version string) error {
	before := live.DeepCopy()
	desired.Spec.DeepCopyInto(&live.Spec)
	crdversion.Set(live, version)
	if equality.Semantic.DeepEqual(before, live) {
		return nil
	}
	err := stored.MigrateAndWrite(ctx, migrated{cluster}, desired, func() error { return cluster.Update(ctx, live) })
	if apierrors.IsForbidden(err) {
		log.FromContext(ctx).Info("A CustomResourceDefinition differs and may not be changed", "name", live.Name, "reason", err.Error())
		return nil
	}
	return err
}

// isNewer reports whether a definition on the cluster stays because it is of a newer version or release than a program.
func isNewer(ctx context.Context, live client.Object, version string) bool {
	if !crdversion.IsNewer(live, version) {
		return false
	}
	log.FromContext(ctx).V(1).Info("The CustomResourceDefinition is of a newer operator and stays", "name", live.GetName(),
		"version", live.GetAnnotations()[fleet.AnnotationOperatorVersion], "release", live.GetAnnotations()[upgrade.AnnotationVersion])
	return true
}

// ApplyCRDs applies the definitions as part of an installation, except those that a newer operator has applied, and those of a group of
// Kubernetes itself that others have, as these may be newer, too. Those that were applied have a resource version then. A definition that
// cannot be applied does not keep the others from it; the error has all failures.
func (c *Cluster) ApplyCRDs(ctx context.Context, installation string, crds []*apiextensionsv1.CustomResourceDefinition) error {
	var failures []error
	for _, crd := range crds {
		live, err := c.metadataOf(ctx, crd)
		if err != nil {
			return err
		}
		if isNewer(ctx, live, c.Version) || c.isOfOthers(live, crd.Spec.Group) {
			continue
		}
		crdversion.Set(crd, c.Version)
		apply := func() error { return c.Apply(ctx, installation, crd) }
		failures = append(failures, stored.MigrateAndWrite(ctx, migrated{c.Client}, crd, apply))
	}
	return errors.Join(failures...)
}

// isOfOthers reports whether a definition of a group of Kubernetes itself is on the cluster, and part of no installation.
func (c *Cluster) isOfOthers(live client.Object, group string) bool {
	return live.GetResourceVersion() != "" && live.GetLabels()[c.Label] == "" && apihelpers.IsProtectedCommunityGroup(group)
}

// ReleaseCRD leaves a definition, with what is stored of its kind, on the cluster, and takes off it what makes it part of an installation.
func (c *Cluster) ReleaseCRD(ctx context.Context, crd client.Object) error {
	change := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:null,%q:null}}}`, c.Label,
		fleet.AnnotationOperatorVersion, upgrade.AnnotationVersion)
	if err := c.Client.Patch(ctx, crd, client.RawPatch(types.MergePatchType, change)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	c.forget(reference{CRDs, client.ObjectKeyFromObject(crd)})
	return nil
}

// metadataOf is that of a definition on the cluster; empty if there is none.
func (c *Cluster) metadataOf(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (client.Object, error) {
	live := c.prototype(CRDs)
	err := c.reader(CRDs).Get(ctx, client.ObjectKeyFromObject(crd), live)
	if apierrors.IsNotFound(err) { // the cache has none that another installer made, without the label of this one
		err = c.Client.Get(ctx, client.ObjectKeyFromObject(crd), live)
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get CustomResourceDefinition %s: %w", crd.Name, err)
	}
	return live, nil
}

package admission

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// DefaultManifestLimit is how many bytes the manifests of one ManifestWork may take unless configured otherwise: 1 MiB.
// etcd takes 1.5 MiB in one write unless configured otherwise; the rest is for the status, which grows with every manifest,
// and for the metadata.
const DefaultManifestLimit = 1 << 20

var manifestWorkKind = workv1.GroupVersion.WithKind("ManifestWork").GroupKind()

// ManifestWorkOptions is what ValidateManifestWork needs, in addition to the objects.
type ManifestWorkOptions struct {
	// Limit is how many bytes all manifests may take together, as JSON. 0 means DefaultManifestLimit.
	Limit int
	// NilExecutorValidating is the feature gate of this name: a ManifestWork without executor needs the permission to
	// execute as the agent.
	NilExecutorValidating bool
	// Clusters reads the cluster that a ManifestWork is for. With nil, the state of the cluster is not checked.
	Clusters ClusterGetter
}

// ValidateManifestWork validates a ManifestWork that is created (old is nil) or updated: its manifests and its executor. It fails with
// 400 for manifests that are missing, too large, not objects or the same object twice, and for an executor that the sender may not use,
// and with 403 for new content for a cluster that is denied or being deleted. An update that does not change the manifests is not
// checked for them again; for a work with an executor, every change of what the executor does is checked.
func ValidateManifestWork(
	ctx context.Context, work, old *workv1.ManifestWork, sender Sender, opts ManifestWorkOptions,
) error {
	if old == nil || !equality.Semantic.DeepEqual(work.Spec.Workload, old.Spec.Workload) {
		path := field.NewPath("spec", "workload", "manifests")
		if errs := validateManifests(path, work.Spec.Workload.Manifests, opts.Limit); len(errs) > 0 {
			return badRequest(manifestWorkKind, work.Name, errs)
		}
		if err := validateCluster(ctx, work, old, opts.Clusters); err != nil {
			return err
		}
	}
	execution := execution{now: &work.Spec}
	if old != nil {
		execution.before = &old.Spec
	}
	if errs := validateManifestConfigs(field.NewPath("spec"), execution.now, execution.before); len(errs) > 0 {
		return badRequest(manifestWorkKind, work.Name, errs)
	}
	if err := validateExecutor(ctx, field.NewPath("spec", "executor"), execution, work.Namespace, sender, opts); err != nil {
		return badRequest(manifestWorkKind, work.Name, field.ErrorList{err})
	}
	return nil
}

// validateManifests checks what can be known of the manifests before they reach their cluster.
func validateManifests(path *field.Path, manifests []workv1.Manifest, limit int) field.ErrorList {
	if len(manifests) == 0 {
		return field.ErrorList{field.Required(path, "a ManifestWork needs at least one manifest")}
	}
	if err := validateSize(path, manifests, limit); err != nil {
		return field.ErrorList{err}
	}
	var errs field.ErrorList
	seen := make(map[objectID]int, len(manifests))
	for i := range manifests {
		id, err := identify(path.Index(i), manifests[i].Raw)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if first, found := seen[id.object()]; found {
			errs = append(errs, field.Invalid(path.Index(i), id.String(),
				fmt.Sprintf("duplicate of manifest %d: an object may occur only once in a ManifestWork, in whichever version", first)))
			continue
		}
		seen[id.object()] = i
	}
	return errs
}

// manifestID identifies the object of a manifest.
type manifestID struct{ apiVersion, kind, namespace, name string }

// objectID identifies an object, whatever the version in which a manifest has it.
type objectID struct {
	schema.GroupKind
	namespace, name string
}

func (id manifestID) object() objectID {
	return objectID{GroupKind: schema.FromAPIVersionAndKind(id.apiVersion, id.kind).GroupKind(), namespace: id.namespace, name: id.name}
}

func (id manifestID) String() string {
	name := id.name
	if id.namespace != "" {
		name = id.namespace + "/" + id.name
	}
	return fmt.Sprintf("%s %s %s", id.apiVersion, id.kind, name)
}

// identify returns which object a manifest is, or an error if that is not known.
func identify(path *field.Path, raw []byte) (manifestID, *field.Error) {
	var object metav1.PartialObjectMetadata
	if len(raw) == 0 {
		return manifestID{}, field.Required(path, "the manifest is empty: write a Kubernetes object")
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		// The content stays out of the message: it may be that of a Secret.
		return manifestID{}, field.Invalid(path, fmt.Sprintf("%d bytes", len(raw)),
			fmt.Sprintf("the manifest is not a Kubernetes object: %v", err))
	}
	id := manifestID{apiVersion: object.APIVersion, kind: object.Kind, namespace: object.Namespace, name: object.Name}
	switch {
	case id.apiVersion == "":
		return id, field.Required(path.Child("apiVersion"), "write the group and version of the object, such as apps/v1")
	case id.kind == "":
		return id, field.Required(path.Child("kind"), "write the kind of the object, such as Deployment")
	case object.GenerateName != "":
		return id, field.Invalid(path.Child("metadata", "generateName"), object.GenerateName,
			fmt.Sprintf("generateName is not allowed in a manifest: give the %s a fixed metadata.name", id.kind))
	case id.name == "":
		return id, field.Required(path.Child("metadata", "name"), fmt.Sprintf("the %s has no name", id.kind))
	}
	return id, nil
}

// validateSize checks the limit, and names the largest manifest.
func validateSize(path *field.Path, manifests []workv1.Manifest, limit int) *field.Error {
	if limit == 0 {
		limit = DefaultManifestLimit
	}
	total, largest := 0, 0
	for i := range manifests {
		total += len(manifests[i].Raw)
		if len(manifests[i].Raw) > len(manifests[largest].Raw) {
			largest = i
		}
	}
	if total <= limit {
		return nil
	}
	who := "unreadable"
	if id, err := identify(path.Index(largest), manifests[largest].Raw); err == nil {
		who = id.String()
	}
	return field.Invalid(path, fmt.Sprintf("%d bytes", total), fmt.Sprintf(
		"the size of the manifests is %d bytes, the limit is %d bytes: spread them over several ManifestWorks "+
			"(the largest is manifest %d, %s, of %d bytes)", total, limit, largest, who, len(manifests[largest].Raw)))
}

// execution is what a work does and under which identity. For a template, it is what the works that are made from it do.
type execution struct {
	// now is the spec, and before what it was, nil for an object that is created.
	now, before *workv1.ManifestWorkSpec
	// amended is true if another change than that of the spec changes what is done.
	amended bool
}

// changed reports whether the executor, or what it does, differs from what was checked before. Otherwise a user who may change a work,
// but not execute as its executor, could use the executor's rights for anything.
func (e execution) changed() bool {
	return e.before == nil || e.amended || !equality.Semantic.DeepEqual(e.now.Executor, e.before.Executor) ||
		!equality.Semantic.DeepEqual(e.now.Workload, e.before.Workload) ||
		!equality.Semantic.DeepEqual(e.now.ManifestConfigs, e.before.ManifestConfigs)
}

// losesExecutor reports whether the agent acts under its own identity from now on, instead of one with fewer rights.
func (e execution) losesExecutor() bool {
	return e.before != nil && e.before.Executor != nil && e.now.Executor == nil
}

// validateExecutor checks the permission to let the agent of a cluster act as another identity; without a namespace, the agents of all
// clusters. Without an executor no permission is needed, unless an update removes the executor.
func validateExecutor(
	ctx context.Context, path *field.Path, work execution, namespace string, sender Sender, opts ManifestWorkOptions,
) *field.Error {
	if !work.changed() || work.now.Executor == nil && !work.losesExecutor() && !opts.NilExecutorValidating {
		return nil
	}
	identity, wrong := identityOf(path, work.now.Executor)
	if wrong != nil {
		return wrong
	}
	err := sender.may(ctx, authorizationv1.ResourceAttributes{
		Group: workv1.GroupVersion.Group, Resource: "manifestworks", Verb: fleet.VerbExecuteAs,
		Namespace: namespace, Name: identity,
	})
	if err == nil {
		return nil
	}
	where := "in namespace " + namespace
	if namespace == "" {
		where = "in the namespaces of all clusters, which a ClusterRoleBinding gives"
	}
	if work.losesExecutor() {
		where += ", as which the agent acts when the executor is taken away"
	}
	return field.Invalid(path, identity, fmt.Sprintf(
		"user %q cannot manipulate the Manifestwork with executor %s %s: %v", sender.Name, identity, where, err))
}

// identityOf returns the user as whom the agent acts.
func identityOf(path *field.Path, executor *workv1.ManifestWorkExecutor) (string, *field.Error) {
	if executor == nil {
		return fleet.NoExecutor, nil
	}
	subject := path.Child("subject")
	if executor.Subject.Type != workv1.ExecutorSubjectTypeServiceAccount {
		return "", field.NotSupported(subject.Child("type"), executor.Subject.Type,
			[]workv1.ManifestWorkExecutorSubjectType{workv1.ExecutorSubjectTypeServiceAccount})
	}
	account := executor.Subject.ServiceAccount
	if account == nil {
		return "", field.Required(subject.Child("serviceAccount"),
			"an executor of type ServiceAccount needs the namespace and name of one")
	}
	return fleet.ServiceAccountUser(account.Namespace, account.Name), nil
}

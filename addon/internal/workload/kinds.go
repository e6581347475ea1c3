package workload

import (
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// known are the Go types whose objects may omit apiVersion and kind.
var known = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		addonv1alpha1.AddToScheme, addonv1beta1.AddToScheme, operatorv1.AddToScheme, workv1.AddToScheme, workv1alpha1.AddToScheme,
		clusterv1.AddToScheme, clusterv1alpha1.AddToScheme, clusterv1beta1.AddToScheme, clusterv1beta2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // Two types claim one kind: a mistake of the program.
		}
	}
	return scheme
})

func kindOf(o client.Object) (schema.GroupVersionKind, bool) {
	kinds, _, err := known().ObjectKinds(o)
	if err != nil || len(kinds) == 0 {
		return schema.GroupVersionKind{}, false
	}
	return kinds[0], true
}

// plurals maps kinds to resources: the rules of a ManifestWork name resources, its manifests have kinds.
type plurals map[schema.GroupKind]string

// pluralsOf collects what the cluster reports of the objects, and what CustomResourceDefinitions among them define.
func pluralsOf(objects []*object, works []*work) plurals {
	known := plurals{}
	for _, w := range works {
		for _, m := range w.Status.ResourceStatus.Manifests {
			if r := m.ResourceMeta; r.Resource != "" {
				known[schema.GroupKind{Group: r.Group, Kind: r.Kind}] = r.Resource
			}
		}
	}
	for _, o := range objects {
		if o.plural != "" {
			known[o.defines] = o.plural
		}
	}
	return known
}

// of returns the resource of a kind. An unknown kind gets the plural that Kubernetes guesses, except for Gateway; a wrong guess is
// corrected once the cluster has reported on the object.
func (p plurals) of(kind schema.GroupKind) string {
	if plural, ok := p[kind]; ok {
		return plural
	}
	singular := strings.ToLower(kind.Kind)
	for _, ending := range []string{"ay", "ey", "oy", "uy"} {
		if strings.HasSuffix(singular, ending) {
			return singular + "s"
		}
	}
	guess, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	return guess.Resource
}

// resource returns how the rules of a ManifestWork identify an object.
func (p plurals) resource(o *object) workv1.ResourceIdentifier {
	return workv1.ResourceIdentifier{Group: o.Group, Resource: p.of(o.GroupKind), Namespace: o.namespace, Name: o.name}
}

// concerns reports whether an entry of manifestConfigs may be for the object. It ignores the resource, which may be guessed wrong: an
// entry too many is harmless.
func concerns(entry workv1.ResourceIdentifier, o *object) bool {
	return manifest.Matches(entry, workv1.ResourceIdentifier{Group: o.Group, Resource: entry.Resource, Namespace: o.namespace, Name: o.name})
}

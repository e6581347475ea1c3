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

// known are the types whose objects may leave out apiVersion and kind.
var known = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		addonv1alpha1.AddToScheme, addonv1beta1.AddToScheme, operatorv1.AddToScheme, workv1.AddToScheme, workv1alpha1.AddToScheme,
		clusterv1.AddToScheme, clusterv1alpha1.AddToScheme, clusterv1beta1.AddToScheme, clusterv1beta2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // Two types claim one name: nothing could be read.
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

// plurals are the resources of kinds: what a ManifestWork calls objects in its rules, while its manifests have kinds.
type plurals map[schema.GroupKind]string

// pluralsOf collects what is known: what the cluster reports of the objects, and what CustomResourceDefinitions among them say.
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

// of is the resource of a kind. Where nobody has told, it is what Kubernetes guesses, except that of Gateways are gateways: a
// plural out of the ordinary is put right once the cluster has reported on the object.
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

// resource is how the rules of a ManifestWork call an object.
func (p plurals) resource(o *object) workv1.ResourceIdentifier {
	return workv1.ResourceIdentifier{Group: o.Group, Resource: p.of(o.GroupKind), Namespace: o.namespace, Name: o.name}
}

// concerns tells whether an entry of manifestConfigs may be about the object. The resource of a kind may be guessed wrong, so it
// does not count here: an entry too many does no harm.
func concerns(entry workv1.ResourceIdentifier, o *object) bool {
	return manifest.Matches(entry, workv1.ResourceIdentifier{Group: o.Group, Resource: entry.Resource, Namespace: o.namespace, Name: o.name})
}

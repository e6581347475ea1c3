// Package hub holds what a hub in an existing cluster consists of, besides the programs and the CRDs: permissions, policies and webhooks.
// The files are for a hub named cluster-manager in the namespace open-cluster-management-hub; the package returns their objects for others,
// too.
package hub

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed rights.yaml
var rights string

//go:embed policies.yaml
var policies string

//go:embed clusterprofiles.yaml
var clusterProfiles string

//go:embed clusterimporter.yaml
var clusterImporter string

//go:embed applications.yaml
var applications string

//go:embed sigplacementdecisions.yaml
var sigPlacementDecisions string

//go:embed grpc.yaml
var grpc string

//go:embed webhooks.yaml
var webhooks string

// Names are those that differ between hubs.
type Names struct {
	// Namespace holds the service accounts and the services of the hub.
	Namespace string
	// ClusterManager is the name of the ClusterManager.
	ClusterManager string
}

// The names in the files.
const (
	namespaceInFiles      = "open-cluster-management-hub"
	clusterManagerInFiles = "cluster-manager"
)

// Rights returns the namespace of the hub, and the service accounts of the components that it runs, with their permissions. Those with
// which clusters ask to join are not among them: they are there before the hub is.
func Rights(names Names, accounts []string) []client.Object {
	all := slices.DeleteFunc(decode(rights, names), forJoining)
	bound, unbound := map[string]bool{}, map[string]bool{} // roles, by their names
	all = slices.DeleteFunc(all, func(object client.Object) bool {
		subjects, role := binding(object)
		if subjects == nil {
			return false
		}
		*subjects = slices.DeleteFunc(*subjects, func(s rbacv1.Subject) bool { return !slices.Contains(accounts, s.Name) })
		if len(*subjects) == 0 {
			unbound[role] = true
			return true
		}
		bound[role] = true
		return false
	})
	return slices.DeleteFunc(all, func(object client.Object) bool {
		switch object.(type) {
		case *corev1.ServiceAccount:
			return !slices.Contains(accounts, object.GetName())
		case *rbacv1.ClusterRole, *rbacv1.Role:
			return unbound[object.GetName()] && !bound[object.GetName()]
		default:
			return false
		}
	})
}

// binding is whom a binding gives a role, and which; nil if the object is none.
func binding(object client.Object) (subjects *[]rbacv1.Subject, role string) {
	switch binding := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		return &binding.Subjects, binding.RoleRef.Name
	case *rbacv1.RoleBinding:
		return &binding.Subjects, binding.RoleRef.Name
	default:
		return nil, ""
	}
}

// forJoining tells whether the object is part of how clusters ask to join.
func forJoining(object client.Object) bool {
	const namespaceOfOperators = "open-cluster-management"
	_, isNamespace := object.(*corev1.Namespace)
	return object.GetNamespace() == namespaceOfOperators || isNamespace && object.GetName() == namespaceOfOperators ||
		strings.HasPrefix(object.GetName(), "open-cluster-management:bootstrap")
}

// Policies returns the ValidatingAdmissionPolicies for the components, with their bindings.
func Policies(names Names) []client.Object { return decode(policies, names) }

// ClusterProfiles returns what the registration controllers may do besides with the feature gate ClusterProfile.
func ClusterProfiles(names Names) []client.Object { return decode(clusterProfiles, names) }

// ClusterImporter returns what the registration controllers may do besides with the feature gate ClusterImporter.
func ClusterImporter(names Names) []client.Object { return decode(clusterImporter, names) }

// Applications returns what the add-on manager may do besides with the feature gate GitOpsCluster.
func Applications(names Names) []client.Object { return decode(applications, names) }

// SIGPlacementDecisions returns what the placement controllers may do besides with the feature gate SIGPlacementDecision.
func SIGPlacementDecisions(names Names) []client.Object { return decode(sigPlacementDecisions, names) }

// GRPC returns what a hub has besides, where clusters register through its gRPC server: the service account, permissions and policies of
// the server, and the permissions for the signer of its clients.
func GRPC(names Names) []client.Object { return decode(grpc, names) }

// Webhooks returns the configurations of the webhooks, without certificate authorities. Their services have the same names in every hub.
func Webhooks(names Names) []client.Object {
	names.ClusterManager = clusterManagerInFiles
	return decode(webhooks, names)
}

var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, admissionregistrationv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// decode panics on a file that is broken, because that is an error of the build.
func decode(file string, names Names) (objects []client.Object) {
	replaced := strings.NewReplacer(
		namespaceInFiles, names.Namespace,
		clusterManagerInFiles+"-", names.ClusterManager+"-",
		":"+clusterManagerInFiles+":", ":"+names.ClusterManager+":",
	).Replace(file)
	for document := range strings.SplitSeq(replaced, "\n---\n") {
		decoded, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			panic(fmt.Sprintf("decode an embedded object of the hub: %v\n%s", err, document))
		}
		object, ok := decoded.(client.Object)
		if !ok {
			panic(fmt.Sprintf("%T is no object", decoded))
		}
		objects = append(objects, object)
	}
	return objects
}

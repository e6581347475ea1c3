package framework

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
)

// kubectlLine is a command line in a text. It ends with the quotation, the brackets, the part of the sentence or the line that it is in. A
// comma within a word, as in a selector, does not end it.
var kubectlLine = regexp.MustCompile(`kubectl ((?:'[^']*'|,\w|[^'"»);,\n])+)`)

var kubectlWord = regexp.MustCompile(`'[^']*'|\S+`)

// Advised finds a command of kubectl in a text by some words of it in a row, such as "annotate manifestwork", and returns all words that
// follow "kubectl". A line may have several, with && between them.
func Advised(t *testing.T, text, command string) (words []string) {
	t.Helper()
	for _, line := range kubectlLine.FindAllStringSubmatch(text, -1) {
		for one := range strings.SplitSeq(line[1], " && kubectl ") {
			if !strings.Contains(one, command) {
				continue
			}
			for _, word := range kubectlWord.FindAllString(one, -1) {
				words = append(words, strings.ReplaceAll(word, "'", ""))
			}
			return words
		}
	}
	t.Fatalf("kubectl … %s … is not advised in: %s", command, text)
	return nil
}

// FollowAdvice does with a client what a text advises to do by kubectl: to create a namespace or what gives rights, to approve a
// certificate request, to set annotations or take them off, a merge patch, to delete an object or Secrets, or to look at an object. The
// command is found as by Advised.
func FollowAdvice(t *testing.T, c client.Client, text, command string) {
	t.Helper()
	flags := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	namespace, patch := flags.StringP("namespace", "n", "", ""), flags.StringP("patch", "p", "", "")
	patchType, selector := flags.String("type", "strategic", ""), flags.String("selector", "", "")
	flags.Bool("overwrite", false, "")
	rights := addRightsFlags(flags)
	if err := flags.Parse(Advised(t, text, command)); err != nil {
		t.Fatal(err)
	}
	args := flags.Args()
	if *selector != "" {
		deleteSelected(t, c, args, *namespace, *selector)
		return
	}
	if len(args) < 3 {
		t.Fatalf("kubectl %q names no object", args)
	}
	switch kind, name := args[1], args[2]; {
	case args[0] == "create" && kind == "namespace":
		Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	case args[0] == "create":
		Create(t, c, rights.object(t, kind, *namespace, name))
	case args[0] == "certificate" && kind == "approve":
		csr := &certificatesv1.CertificateSigningRequest{}
		Get(t, c, client.ObjectKey{Name: name}, csr)
		if err := env.Approve(t.Context(), c, csr); err != nil {
			t.Fatal(err)
		}
	case args[0] == "annotate":
		MergePatch(t, c, advisedObject(t, kind, *namespace, name), annotationPatch(t, args[3:]))
	case args[0] == "delete":
		if err := c.Delete(t.Context(), advisedObject(t, kind, *namespace, name)); err != nil {
			t.Fatal(err)
		}
	case args[0] == "describe":
		Get(t, c, client.ObjectKey{Namespace: *namespace, Name: name}, advisedObject(t, kind, *namespace, name))
	case args[0] == "patch" && *patchType == "merge":
		MergePatch(t, c, advisedObject(t, kind, *namespace, name), *patch)
	default:
		t.Fatalf("kubectl %q is none of the commands that the test knows", args)
	}
}

// deleteSelected deletes Secrets of a namespace, of which there are some.
func deleteSelected(t *testing.T, c client.Client, args []string, namespace, selector string) {
	t.Helper()
	parsed, err := labels.Parse(selector)
	if err != nil || !slices.Equal(args, []string{"delete", "secrets"}) {
		t.Fatalf("kubectl %q --selector %q is none of the commands that the test knows: %v", args, selector, err)
	}
	selected := client.ListOptions{Namespace: namespace, LabelSelector: parsed}
	found := &corev1.SecretList{}
	if err := c.List(t.Context(), found, &selected); err != nil || len(found.Items) == 0 {
		t.Fatalf("namespace %s has %d Secrets with %s: %v", namespace, len(found.Items), selector, err)
	}
	if err := c.DeleteAllOf(t.Context(), &corev1.Secret{}, &client.DeleteAllOfOptions{ListOptions: selected}); err != nil {
		t.Fatal(err)
	}
}

func advisedObject(t *testing.T, kind, namespace, name string) (o client.Object) {
	t.Helper()
	switch kind {
	case "manifestwork":
		o = &workv1.ManifestWork{}
	case "appliedmanifestwork":
		o = &workv1.AppliedManifestWork{}
	case "managedclusteraddon":
		o = &addonv1beta1.ManagedClusterAddOn{}
	case "managedcluster":
		o = &clusterv1.ManagedCluster{}
	case "configmap":
		o = &corev1.ConfigMap{}
	default:
		t.Fatalf("the test knows no kind %q", kind)
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// annotationPatch is the merge patch for annotations that a command of kubectl lists as KEY=VALUE, or with a "-" at the end to take it off.
func annotationPatch(t *testing.T, list []string) (patch string) {
	t.Helper()
	annotations := map[string]any{}
	for _, word := range list {
		key, value, set := strings.Cut(word, "=")
		if set {
			annotations[key] = value
			continue
		}
		key, removed := strings.CutSuffix(word, "-")
		if !removed {
			t.Fatalf("%q neither sets an annotation nor takes one off", word)
		}
		annotations[key] = nil
	}
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// rightsFlags are those of the commands of kubectl that create roles and bind them.
type rightsFlags struct {
	verbs, resourceNames                          *[]string
	resource, role, clusterRole, account, subject *string
}

func addRightsFlags(flags *pflag.FlagSet) rightsFlags {
	return rightsFlags{
		verbs: flags.StringSlice("verb", nil, ""), resourceNames: flags.StringSlice("resource-name", nil, ""),
		resource: flags.String("resource", "", ""), role: flags.String("role", "", ""), clusterRole: flags.String("clusterrole", "", ""),
		account: flags.String("serviceaccount", "", ""), subject: flags.String("user", "", ""),
	}
}

// object is the role or the binding that a command creates.
func (f rightsFlags) object(t *testing.T, kind, namespace, name string) client.Object {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	switch kind {
	case "role":
		return &rbacv1.Role{ObjectMeta: meta, Rules: f.rules()}
	case "clusterrole":
		return &rbacv1.ClusterRole{ObjectMeta: meta, Rules: f.rules()}
	case "rolebinding":
		return &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: f.subjects(),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: *f.role}}
	case "clusterrolebinding":
		return &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: f.subjects(),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: *f.clusterRole}}
	}
	t.Fatalf("the test cannot create a %s", kind)
	return nil
}

// rules are for a resource, written as RESOURCE.GROUP/SUBRESOURCE.
func (f rightsFlags) rules() []rbacv1.PolicyRule {
	resource, subresource, isSub := strings.Cut(*f.resource, "/")
	resource, group, _ := strings.Cut(resource, ".")
	if isSub {
		resource += "/" + subresource
	}
	return []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: *f.verbs, ResourceNames: *f.resourceNames}}
}

// subjects are a user, or a service account that is written as NAMESPACE:NAME.
func (f rightsFlags) subjects() []rbacv1.Subject {
	if namespace, name, found := strings.Cut(*f.account, ":"); found {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	}
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: *f.subject}}
}

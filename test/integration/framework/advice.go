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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
)

// kubectlLine is a command line in a text. It ends with the quotation, the brackets, the part of the sentence or the line that it is in. A
// comma within a word, as in a selector, does not end it.
var kubectlLine = regexp.MustCompile(`kubectl ((?:'[^']*'|,\w|[^'"»);,\n])+)`)

var kubectlWord = regexp.MustCompile(`'[^']*'|\S+`)

// Advised finds a command of kubectl in a text by some words of it in a row, such as "annotate manifestwork", and returns all words that
// follow "kubectl".
func Advised(t *testing.T, text, command string) (words []string) {
	t.Helper()
	for _, line := range kubectlLine.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(line[1], command) {
			continue
		}
		for _, word := range kubectlWord.FindAllString(line[1], -1) {
			words = append(words, strings.Trim(word, "'"))
		}
		return words
	}
	t.Fatalf("kubectl … %s … is not advised in: %s", command, text)
	return nil
}

// FollowAdvice does with a client what a text advises to do by kubectl: to create a namespace, to approve a certificate request, to take
// annotations off, a merge patch, to delete a ConfigMap or Secrets, or to look at an object. The command is found as by Advised.
func FollowAdvice(t *testing.T, c client.Client, text, command string) {
	t.Helper()
	flags := pflag.NewFlagSet("kubectl", pflag.ContinueOnError)
	namespace, patch := flags.StringP("namespace", "n", "", ""), flags.StringP("patch", "p", "", "")
	patchType, selector := flags.String("type", "strategic", ""), flags.String("selector", "", "")
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
	case args[0] == "certificate" && kind == "approve":
		csr := &certificatesv1.CertificateSigningRequest{}
		Get(t, c, client.ObjectKey{Name: name}, csr)
		if err := env.Approve(t.Context(), c, csr); err != nil {
			t.Fatal(err)
		}
	case args[0] == "annotate":
		MergePatch(t, c, advisedObject(t, kind, *namespace, name), withoutAnnotations(t, args[3:]))
	case args[0] == "delete" && kind == "configmap":
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
	case "configmap":
		o = &corev1.ConfigMap{}
	default:
		t.Fatalf("the test knows no kind %q", kind)
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// withoutAnnotations is the merge patch for annotations that a command of kubectl lists with a "-" at the end of each.
func withoutAnnotations(t *testing.T, list []string) (patch string) {
	t.Helper()
	annotations := map[string]any{}
	for _, word := range list {
		key, removed := strings.CutSuffix(word, "-")
		if !removed {
			t.Fatalf("%q takes no annotation off", word)
		}
		annotations[key] = nil
	}
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

package docs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCompatibility keeps the versions on docs/compatibility.md in step with the modules that are linked, and sees to it that the tests
// which the page names exist.
func TestCompatibility(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for module, row := range map[string]string{
		"k8s.io/kubernetes":         "| the API server of a standalone hub, and of sandbox clusters | %s |",
		"go.etcd.io/etcd/server/v3": "| the embedded etcd | %s |",
	} {
		match := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(string(modules))
		if match == nil {
			t.Fatalf("go.mod requires no %s", module)
		}
		if want := strings.Replace(row, "%s", match[1], 1); !strings.Contains(string(page), want) {
			t.Errorf("compatibility.md has no row %q", want)
		}
	}
	argo, err := os.ReadFile("../test/argocd/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^\s*github\.com/argoproj/argo-cd/v3 v(\S+)`).FindStringSubmatch(string(argo))
	if version == nil {
		t.Fatal("test/argocd/go.mod requires no Argo CD")
	}
	gitOps, err := os.ReadFile("gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"compatibility.md": page, "gitops.md": gitOps} {
		if want := "Argo CD " + version[1]; !strings.Contains(string(content), want) {
			t.Errorf("%s does not name %s, with which it is tested", name, want)
		}
	}
	sdk, err := os.ReadFile("../test/interop/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version = regexp.MustCompile(`(?m)^\s*open-cluster-management\.io/sdk-go v(\S+)`).FindStringSubmatch(string(sdk))
	if version == nil {
		t.Fatal("test/interop/go.mod requires no SDK of Open Cluster Management")
	}
	if want := "SDK of Open Cluster Management " + version[1] + " "; !strings.Contains(string(page), want) {
		t.Errorf("compatibility.md does not name %s, with which it is tested", want)
	}
	functions, _ := readTests(t)
	for _, match := range namedTest.FindAllStringSubmatch(string(page), -1) {
		if _, exists := functions[match[1]+"."+match[2]]; !exists {
			t.Errorf("compatibility.md: there is no %s in %s", match[2], match[1])
		}
	}
}

// TestOldestKubernetes keeps the oldest version of Kubernetes that pages tell in step with the charts, which refuse older ones.
func TestOldestKubernetes(t *testing.T) {
	t.Parallel()
	for chart, texts := range map[string]map[string]string{
		"cluster-manager": {
			"compatibility.md":       "| | %s and later | untested. %[1]s is the first",
			"install-in-clusters.md": "Kubernetes %s or newer for a hub",
			"existing-cluster.md":    "(Kubernetes %s or later)",
		},
		"klusterlet":  {"compatibility.md": "| | %s and later | untested |", "install-in-clusters.md": "%s or newer for agents"},
		"capstan-hub": {"compatibility.md": "| | %s and later | untested |", "install-in-clusters.md": "%s or newer for agents and standalone hubs"},
	} {
		metadata, err := os.ReadFile("../deploy/charts/" + chart + "/Chart.yaml")
		if err != nil {
			t.Fatal(err)
		}
		match := regexp.MustCompile(`(?m)^kubeVersion: ">=([0-9]+\.[0-9]+)\.0-0"$`).FindStringSubmatch(string(metadata))
		if match == nil {
			t.Fatalf("chart %s does not say which Kubernetes it needs", chart)
		}
		for page, text := range texts {
			content, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(text, match[1]); !strings.Contains(string(content), want) {
				t.Errorf("%s: there is no %q, as chart %s has it", page, want, chart)
			}
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/controlplane"
)

// SC-02 SC-21: which cluster the hub manages itself, and which flags are refused.
func TestSelfManagementFlags(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: https://beside.test}}]\n" +
		"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	const hosting = "https://hosting.test"
	for name, test := range map[string]struct {
		args      []string
		inCluster bool
		managed   string
		err       string
	}{
		"off":                   {inCluster: true},
		"on":                    {args: []string{"--self-management", "--self-management-cluster-name=local"}, inCluster: true, managed: hosting},
		"outside a cluster":     {args: []string{"--self-management"}},
		"beside a cluster":      {args: []string{"--self-management", "--self-management-kubeconfig=" + kubeconfig}, managed: "https://beside.test"},
		"for another cluster":   {args: []string{"--self-management", "--self-management-kubeconfig=" + kubeconfig}, inCluster: true, managed: "https://beside.test"},
		"a kubeconfig and off":  {args: []string{"--self-management-kubeconfig=" + kubeconfig}},
		"no kubeconfig":         {args: []string{"--self-management", "--self-management-kubeconfig=absent"}, err: "--self-management-kubeconfig"},
		"no name of a cluster":  {args: []string{"--self-management", "--self-management-cluster-name=A.B"}, err: "--self-management-cluster-name"},
		"a name that is in use": {args: []string{"--self-management", "--self-management-cluster-name=default"}, err: "--self-management-cluster-name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, command := selfManagementFlags{}, newServerCommand()
			command.ResetFlags()
			f.add(command.Flags())
			if err := command.ParseFlags(test.args); err != nil {
				t.Fatal(err)
			}
			o := controlplane.NewOptions()
			o.Config.DataDirectory = "/data"
			if test.inCluster {
				o.Hosting = &controlplane.Hosting{Namespace: "planes", Client: &rest.Config{Host: hosting}}
			}
			self, err := f.options(t.Context(), o)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one about %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			managed := ""
			if self.Managed != nil {
				managed = self.Managed.Host
			}
			file := "/data/cert/kube-aggregator.kubeconfig"
			if test.inCluster {
				file = "/data/cert/incluster.kubeconfig"
			}
			if managed != test.managed || self.Dir != "/data/agent" || self.HubKubeconfig != file {
				t.Errorf("it manages %q from %s, and reaches the hub with %s", managed, self.Dir, self.HubKubeconfig)
			}
		})
	}
}

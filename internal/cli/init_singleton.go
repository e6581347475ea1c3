package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/cli/install"
	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/program"
)

// singletonRelease is the name of the release, the Deployment and the Service of a standalone hub, and the beginning of the name of the
// Secret with its kubeconfig.
const singletonRelease = "multicluster-controlplane"

// singletonFlags are those of "capstan init --singleton".
type singletonFlags struct {
	enabled bool
	name    string
	helm    map[string]*[]string // flags of Helm, passed on
}

func (f *singletonFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&f.enabled, "singleton", false, "install a standalone hub, in one pod, instead of an operator")
	flags.StringVar(&f.name, "singleton-name", "singleton-controlplane", "name of the standalone hub: its namespace, and the file with its kubeconfig")
	f.helm = map[string]*[]string{"values": flags.StringSliceP("values", "f", nil, "with --singleton: files with values of the chart capstan-hub")}
	for flag, what := range map[string]string{
		"set": "key=value", "set-string": "key=value, which stay text", "set-file": "key=file, which holds the value", "set-json": "key=JSON",
		"set-literal": "key=value, in which no character means anything else",
	} {
		f.helm[flag] = flags.StringArray(flag, nil, "with --singleton: values of the chart capstan-hub as "+what)
		complete(command, flag, cobra.NoFileCompletions)
	}
	complete(command, "singleton-name", cobra.NoFileCompletions)
}

func (f *singletonFlags) check() error {
	if f.enabled {
		return checkNamespaceName("--singleton-name", f.name)
	}
	for flag, given := range f.helm {
		if len(*given) > 0 {
			return fmt.Errorf("--%s: useless without --singleton; --cluster-manager-values-file has the values of a hub with an operator", flag)
		}
	}
	return nil
}

// args are the flags of Helm for the program for charts.
func (f *singletonFlags) args() []string {
	var args []string
	for _, flag := range []string{"values", "set", "set-string", "set-file", "set-json", "set-literal"} {
		for _, value := range *f.helm[flag] {
			args = append(args, "--"+flag, value)
		}
	}
	return args
}

// installSingleton installs a standalone hub as a release of Helm, or upgrades it.
func (i *initialization) installSingleton(ctx context.Context) error {
	cluster, err := install.Connect(i.installTarget())
	if err != nil {
		return err
	}
	if err := checkKubernetes(ctx, cluster, oldestForAgents); err != nil {
		return err
	}
	tag, err := i.images.versions.imageTag(program.Version())
	if err != nil {
		return err
	}
	helm := charts{cluster.Source(), map[string]any{"image": strings.TrimSuffix(i.images.registry, "/") + "/capstan-hub:" + tag}}
	args := append([]string{singletonRelease, "capstan-hub", "--namespace", i.singleton.name, "--values", "-"}, i.singleton.args()...)
	if i.dryRun {
		manifests, err := helm.run(ctx, append([]string{"template"}, args...)...)
		if err == nil {
			i.say("%s", strings.TrimSpace(manifests))
		}
		return err
	}
	if i.createNamespace {
		args = append(args, "--create-namespace")
	}
	if _, err := helm.run(ctx, append([]string{"install"}, args...)...); err != nil {
		return err
	}
	if !i.wait {
		i.say("The standalone hub %s is installed. Its kubeconfig will be in the Secret %s/%s-kubeconfig.", i.singleton.name, i.singleton.name, singletonRelease)
		return nil
	}
	if err := i.awaitRollout(ctx, cluster, i.singleton.name, singletonRelease); err != nil {
		return err
	}
	return i.fetchKubeconfig(ctx, cluster)
}

// fetchKubeconfig writes the kubeconfig of the standalone hub to a file here.
func (i *initialization) fetchKubeconfig(ctx context.Context, cluster *install.Cluster) error {
	secret := installation.Reference{GroupVersionKind: installation.KindSecret, Namespace: i.singleton.name, Name: singletonRelease + "-kubeconfig"}
	var content []byte
	progress := i.progress()
	defer progress.Close()
	progress.Wait(i.singleton.name, "waiting for its kubeconfig")
	err := cluster.AwaitObject(ctx, secret, func(object *unstructured.Unstructured) bool {
		encoded, _, _ := unstructured.NestedString(object.Object, "data", "kubeconfig")
		var err error
		content, err = base64.StdEncoding.DecodeString(encoded)
		return err == nil && len(content) > 0
	})
	if err != nil {
		return fmt.Errorf("the hub runs and has not written its kubeconfig, %s: %w", secret, err)
	}
	progress.Close()
	file := i.singleton.name + ".kubeconfig"
	if err := playground.WriteSecretFile(file, content); err != nil {
		return fmt.Errorf("write the kubeconfig of the hub: %w", err)
	}
	i.say("The standalone hub %s runs. Its kubeconfig is %s:\n\n    capstan --kubeconfig %s get token", i.singleton.name, file, file)
	return nil
}

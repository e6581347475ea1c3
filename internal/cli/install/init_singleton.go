package install

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/operator/installer"
	"github.com/capstan-io/capstan/internal/program"
)

// singletonFlags are those of "capstan init --singleton".
type singletonFlags struct {
	enabled bool
	name    string

	files []string             // with values
	set   map[string]*[]string // values, by the flags of Helm that give them
}

// setters are the flags of Helm that give values, in the order in which they are read, each over those before it.
var setters = []struct {
	flag, what string
	into       func(value string, values map[string]any) error
}{
	{"set-json", "key=JSON", setJSON},
	{"set", "key=value", strvals.ParseInto},
	{"set-string", "key=value, which stay text", strvals.ParseIntoString},
	{"set-file", "key=file, which holds the value", func(value string, values map[string]any) error {
		return strvals.ParseIntoFile(value, values, func(file []rune) (any, error) {
			content, err := os.ReadFile(string(file))
			return string(content), err
		})
	}},
	{"set-literal", "key=value, in which no character means anything else", strvals.ParseLiteralInto},
}

// setJSON sets the value of a key, or those of an object.
func setJSON(value string, values map[string]any) error {
	if !strings.HasPrefix(strings.TrimSpace(value), "{") {
		return strvals.ParseJSON(value, values)
	}
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(value), &given); err != nil {
		return err
	}
	installer.MergeValues(values, given)
	return nil
}

func (f *singletonFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&f.enabled, "singleton", false, "install a standalone hub, in one pod, instead of an operator")
	flags.StringVar(&f.name, "singleton-name", "singleton-controlplane", "name of the standalone hub: its namespace, and the file with its kubeconfig")
	flags.StringSliceVarP(&f.files, "values", "f", nil, "with --singleton: files with values of the chart capstan-hub")
	f.set = map[string]*[]string{}
	for _, setter := range setters {
		f.set[setter.flag] = flags.StringArray(setter.flag, nil, "with --singleton: values of the chart capstan-hub as "+setter.what)
		options.Complete(command, setter.flag, cobra.NoFileCompletions)
	}
	options.Complete(command, "singleton-name", cobra.NoFileCompletions)
}

func (f *singletonFlags) check() error {
	if f.enabled {
		return options.CheckNamespaceName("--singleton-name", f.name)
	}
	given := map[string]bool{"values": len(f.files) > 0}
	for flag, values := range f.set {
		given[flag] = len(*values) > 0
	}
	for flag, isGiven := range given {
		if isGiven {
			return fmt.Errorf("--%s: useless without --singleton; --cluster-manager-values-file has the values of a hub with an operator", flag)
		}
	}
	return nil
}

// singletonUses are the flags of "capstan init" that --singleton uses, besides those of setters.
var singletonUses = []string{"singleton", "singleton-name", "values", "image-registry", "bundle-version", "bundle-version-overrides",
	"create-namespace", "output-file", "wait", "force"}

// checkOthers refuses the flags that say nothing to a standalone hub.
func (f *singletonFlags) checkOthers(command *cobra.Command) error {
	if !f.enabled {
		return nil
	}
	var useless []string
	command.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && !slices.Contains(singletonUses, flag.Name) && f.set[flag.Name] == nil {
			useless = append(useless, "--"+flag.Name)
		}
	})
	if len(useless) == 0 {
		return nil
	}
	return fmt.Errorf("%s: of no use with --singleton; --values and --set have the values of a standalone hub", strings.Join(useless, ", "))
}

// values puts those of the flags over others.
func (f *singletonFlags) values(values map[string]any) error {
	for _, file := range f.files {
		content, err := os.ReadFile(file)
		over := map[string]any{}
		if err == nil {
			err = yaml.Unmarshal(content, &over)
		}
		if err != nil {
			return fmt.Errorf("--values: %s: %w", file, err)
		}
		installer.MergeValues(values, over)
	}
	for _, setter := range setters {
		for _, value := range *f.set[setter.flag] {
			if err := setter.into(value, values); err != nil {
				return fmt.Errorf("--%s: %q: %w", setter.flag, value, err)
			}
		}
	}
	return nil
}

// installSingleton installs a standalone hub, or upgrades it.
func (i *initialization) installSingleton(ctx context.Context) error {
	cluster, err := connect(i.InstallTarget())
	if err != nil {
		return err
	}
	kubernetes, err := checkKubernetes(ctx, cluster, oldestForAgents)
	if err != nil {
		return err
	}
	hub, given, err := i.standaloneHub(ctx, cluster)
	if err != nil {
		return err
	}
	hub.KnowsSleep = kubernetes.AtLeast(oldestWithSleep)
	objects, err := i.standaloneObjects(hub, given)
	if err != nil {
		return err
	}
	if i.DryRun {
		return printObjects(i.Global, objects)
	}
	if !i.force {
		if err := i.checkSingleton(ctx, cluster, objects); err != nil {
			return err
		}
	}
	var w *waiting
	if i.wait {
		if w, err = newWaiting(ctx, i.Global, cluster, i.singleton.name); err != nil {
			return err
		}
	}
	if err := applyAll(ctx, i.Global, cluster, objects, i.outputFile); err != nil {
		return err
	}
	if i.force {
		if err := takeOver(ctx, i.Global, cluster, objects); err != nil {
			return err
		}
	}
	if err := deleteObsolete(ctx, cluster, hub, objects); err != nil {
		return err
	}
	if !i.wait {
		secret := i.kubeconfigSecret()
		i.Say("The standalone hub %s is installed. Its kubeconfig will be in the Secret %s.", i.singleton.name, secret.Namespace+"/"+secret.Name)
		return nil
	}
	if err := w.awaitRollout(ctx, i.singleton.name, installer.StandaloneHubName); err != nil {
		return err
	}
	return i.fetchKubeconfig(ctx, cluster)
}

// openShiftSecurity is what OpenShift serves, which gives pods users and groups.
var openShiftSecurity = schema.GroupVersion{Group: "security.openshift.io", Version: "v1"}

// Keys of the Secret with the configuration of the hub, for the next run.
const (
	// keySingletonValues has the values that the user has given.
	keySingletonValues = "values.yaml"
	// keySingletonImage has the choice of the image. Where it is missing, an earlier version has put the image among the values.
	keySingletonImage = "image.yaml"
)

// imageChoice is what the user has said about the image of a standalone hub, other than by a value of the chart. What is empty follows this
// program.
type imageChoice struct {
	Registry string `json:"registry,omitempty"`
	Tag      string `json:"tag,omitempty"`
}

// givenValues are what the user has given, in this run and in those before.
type givenValues struct {
	values map[string]any
	image  imageChoice
}

// standaloneHub is the hub that the flags describe. Values that were given before, and are not given now, stay, as they do in Helm.
func (i *initialization) standaloneHub(ctx context.Context, cluster *Cluster) (hub installer.StandaloneHub, given givenValues, err error) {
	hub = installer.StandaloneHub{Namespace: i.singleton.name}
	of := installation.Reference{GroupVersionKind: installation.KindSecret, Namespace: hub.Namespace, Name: installer.StandaloneHubConfig}
	config, err := cluster.Get(ctx, of)
	if err != nil {
		return hub, given, err
	}
	if config != nil {
		hub.CA, hub.CAKey = installation.DataOf(config, installer.KeyStandaloneCA), installation.DataOf(config, installer.KeyStandaloneCAKey)
		if given, err = givenBefore(config); err != nil {
			return hub, given, fmt.Errorf("read the values of the last run in %s: %w", of, err)
		}
	}
	if given.values == nil { // of a hub that Helm has installed
		given.values = map[string]any{}
	}
	if err := i.chooseImage(&given); err != nil {
		return hub, given, err
	}
	if err := i.singleton.values(given.values); err != nil {
		return hub, given, err
	}
	image, err := given.image.image()
	if err != nil {
		return hub, given, err
	}
	hub.Values = map[string]any{"image": image}
	installer.MergeValues(hub.Values, given.values)
	hub.AssignsUsers, err = cluster.Serves(ctx, openShiftSecurity)
	return hub, given, err
}

// givenBefore are what the user has given in runs before.
func givenBefore(config *unstructured.Unstructured) (given givenValues, err error) {
	if err := yaml.Unmarshal(installation.DataOf(config, keySingletonValues), &given.values); err != nil {
		return given, err
	}
	choice := installation.DataOf(config, keySingletonImage)
	if len(choice) == 0 {
		delete(given.values, "image")
	}
	return given, yaml.Unmarshal(choice, &given.image)
}

// chooseImage puts what the flags for images say over what was said before, with a value of the chart, too.
func (i *initialization) chooseImage(given *givenValues) error {
	if i.changed("image-registry") {
		given.image.Registry = strings.TrimSuffix(i.images.registry, "/")
		delete(given.values, "image")
	}
	if !i.changed("bundle-version") && !i.changed("bundle-version-overrides") {
		return nil
	}
	delete(given.values, "image")
	tag, err := i.images.versions.imageTag(program.Version())
	if err != nil {
		return err
	}
	own, err := ownImageTag()
	if err != nil {
		return err
	}
	given.image.Tag = ""
	if tag != own {
		given.image.Tag = tag
	}
	return nil
}

// image is the image that is chosen.
func (c imageChoice) image() (string, error) {
	own, err := ownImageTag()
	return cmp.Or(c.Registry, defaultRegistry) + "/capstan-hub:" + cmp.Or(c.Tag, own), err
}

// ownImageTag is the tag of the images of this program's version.
func ownImageTag() (string, error) {
	return (&bundleFlags{version: defaultBundle}).imageTag(program.Version())
}

// standaloneObjects are what installs the hub, with its namespace if that is to be created, and with what is given for the next run.
func (i *initialization) standaloneObjects(hub installer.StandaloneHub, given givenValues) ([]*unstructured.Unstructured, error) {
	objects, err := hub.Objects()
	if err != nil {
		return nil, err
	}
	config := installation.Find(objects, installation.KindSecret.Kind, installer.StandaloneHubConfig)
	for key, value := range map[string]any{keySingletonValues: given.values, keySingletonImage: given.image} {
		content, err := yaml.Marshal(value)
		if err != nil {
			return nil, err
		}
		if err := unstructured.SetNestedField(config.Object, base64.StdEncoding.EncodeToString(content), "data", key); err != nil {
			return nil, err
		}
	}
	if !i.createNamespace {
		return objects, nil
	}
	namespace := &unstructured.Unstructured{}
	namespace.SetGroupVersionKind(installation.KindNamespace)
	namespace.SetName(hub.Namespace)
	return append([]*unstructured.Unstructured{namespace}, objects...), nil
}

// checkSingleton makes sure that applying can succeed, before anything is changed.
func (i *initialization) checkSingleton(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	if err := i.checkNamespace(ctx, cluster, i.singleton.name); err != nil {
		return err
	}
	running, err := cluster.Deployed(ctx, i.singleton.name, installer.StandaloneHubName)
	if err != nil {
		return err
	}
	if err := checkInstaller(running, i.singleton.name, installer.StandaloneHubName, "upgrade the hub with that"); err != nil {
		return err
	}
	image, err := operatorImage(objects, installer.StandaloneHubName)
	if err != nil {
		return err
	}
	if err := checkSkew(running.Image, image, "", nil); err != nil {
		return fmt.Errorf("%w; use the capstan of that version, or insist with --force", err)
	}
	return checkRights(ctx, cluster, objects)
}

// deleteObsolete deletes what the hub had with other values. Its volume stays, with all data of the hub.
func deleteObsolete(ctx context.Context, cluster *Cluster, hub installer.StandaloneHub, objects []*unstructured.Unstructured) error {
	all, err := hub.Optional()
	if err != nil {
		return err
	}
	for _, optional := range all {
		of := installation.ReferenceTo(optional)
		if slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return installation.ReferenceTo(o) == of }) {
			continue
		}
		existing, err := cluster.Get(ctx, of)
		if err == nil && existing != nil {
			_, err = cluster.Delete(ctx, of)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kubeconfigSecret is where the standalone hub writes the kubeconfig of its administrator.
func (i *initialization) kubeconfigSecret() installation.Reference {
	return installation.Reference{
		GroupVersionKind: installation.KindSecret, Namespace: i.singleton.name, Name: installer.StandaloneHubName + "-kubeconfig"}
}

// fetchKubeconfig writes the kubeconfig of the standalone hub to a file here.
func (i *initialization) fetchKubeconfig(ctx context.Context, cluster *Cluster) error {
	secret := i.kubeconfigSecret()
	var content []byte
	progress := i.Progress()
	defer progress.Close()
	progress.Wait(i.singleton.name, "waiting for its kubeconfig")
	err := cluster.AwaitObject(ctx, secret, func(object *unstructured.Unstructured) bool {
		content = installation.DataOf(object, "kubeconfig")
		return len(content) > 0
	})
	if err != nil {
		return fmt.Errorf("the hub runs and has not written its kubeconfig, %s: %w", secret, err)
	}
	progress.Close()
	file := i.singleton.name + ".kubeconfig"
	if err := playground.WriteSecretFile(file, content); err != nil {
		return fmt.Errorf("write the kubeconfig of the hub: %w", err)
	}
	i.Say("The standalone hub %s runs. Its kubeconfig is %s:\n\n    capstan --kubeconfig %s get token", i.singleton.name, file, file)
	return nil
}

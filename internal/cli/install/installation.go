package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/installer"
	"github.com/capstan-io/capstan/internal/program"
)

// defaultRegistry is where the images of releases are.
const defaultRegistry = "ghcr.io/capstan-io"

// The oldest versions of Kubernetes that can be installed in, which the charts require, too, or that have a feature of use.
var (
	// oldestForHubs has ValidatingAdmissionPolicies, which bound what the controllers of a hub may do with their rights.
	oldestForHubs = version.MustParseGeneric("1.30.0")
	// oldestForAgents has server-side apply and version 1 of all APIs. A standalone hub, which has its own API, needs no more.
	oldestForAgents = version.MustParseGeneric("1.22.0")
	// oldestWithSleep has containers sleep before they stop.
	oldestWithSleep = version.MustParseGeneric("1.30.0")
)

// The Deployments of the operators, in the namespace fleet.NamespaceOperators. Their charts have the same names.
const (
	clusterManagerOperator = "cluster-manager"
	klusterletOperator     = "klusterlet"
)

// installFlags are those that "capstan init" and "capstan join" share.
type installFlags struct {
	images imageFlags

	createNamespace bool
	syncLabels      bool
	outputFile      string
	valuesFile      string
	valuesFlag      string // its name

	qosClass         string
	limits, requests map[string]string
	gates            *gateFlag
}

func (f *installFlags) add(command *cobra.Command, valuesFlag string, gates map[string]featureGate) {
	f.valuesFlag = valuesFlag
	flags := command.Flags()
	f.images.add(command)
	flags.BoolVar(&f.createNamespace, "create-namespace", true, "create the namespace "+fleet.NamespaceOperators+" of the operator")
	flags.BoolVar(&f.syncLabels, "enable-sync-labels", false, "have the operator put the labels of its custom resource on all that it creates")
	flags.StringVar(&f.outputFile, "output-file", "", "write what was applied to this file, which only you can read")
	flags.StringVar(&f.valuesFile, valuesFlag, "", "YAML file with values of the chart, which override those of the other flags")
	flags.StringVar(&f.qosClass, "resource-qos-class", "Default", "resources of what the operator runs: Default, BestEffort or ResourceRequirement")
	flags.StringToStringVar(&f.limits, "resource-limits", nil, "resource limits for ResourceRequirement, such as cpu=1,memory=512Mi")
	flags.StringToStringVar(&f.requests, "resource-requests", nil, "resource requests for ResourceRequirement, such as cpu=10m,memory=64Mi")
	f.gates = addGateFlag(command, gates)
	classes := []string{"Default", "BestEffort", "ResourceRequirement"}
	options.Complete(command, "resource-qos-class", cobra.FixedCompletions(classes, cobra.ShellCompDirectiveNoFileComp))
	for _, flag := range []string{"resource-limits", "resource-requests"} {
		options.Complete(command, flag, cobra.NoFileCompletions)
	}
}

// check finds what is wrong before any request.
func (f *installFlags) check() error {
	if err := options.CheckOutputFile(f.outputFile); err != nil {
		return err
	}
	if !slices.Contains([]string{"Default", "BestEffort", "ResourceRequirement"}, f.qosClass) {
		return fmt.Errorf("--resource-qos-class: %q is none of Default, BestEffort, ResourceRequirement", f.qosClass)
	}
	if f.qosClass != "ResourceRequirement" && len(f.limits)+len(f.requests) > 0 {
		return errors.New("--resource-limits, --resource-requests: useless without --resource-qos-class ResourceRequirement")
	}
	for flag, quantities := range map[string]map[string]string{"--resource-limits": f.limits, "--resource-requests": f.requests} {
		for name, quantity := range quantities {
			if _, err := resource.ParseQuantity(quantity); err != nil {
				return fmt.Errorf("%s: %s=%q is no quantity, such as 500m or 64Mi", flag, name, quantity)
			}
		}
	}
	return nil
}

// resources is the resourceRequirement of a custom resource.
func (f *installFlags) resources() map[string]any {
	requirement := map[string]any{"type": f.qosClass}
	if f.qosClass == "ResourceRequirement" {
		requirement["resourceRequirements"] = map[string]any{"limits": texts(f.limits), "requests": texts(f.requests)}
	}
	return requirement
}

func texts(values map[string]string) map[string]any {
	copied := map[string]any{}
	for key, value := range values {
		copied[key] = value
	}
	return copied
}

// override merges the values of the file into those of the flags.
func (f *installFlags) override(values map[string]any) error {
	if f.valuesFile == "" {
		return nil
	}
	content, err := os.ReadFile(f.valuesFile)
	over := map[string]any{}
	if err == nil {
		err = yaml.Unmarshal(content, &over)
	}
	if err != nil {
		return fmt.Errorf("--%s: %w", f.valuesFlag, err)
	}
	installer.MergeValues(values, over)
	return nil
}

// imageFlags choose images.
type imageFlags struct {
	registry        string
	pullCredentials string
	versions        bundleFlags
}

func (f *imageFlags) add(command *cobra.Command) {
	f.addVersions(command)
	command.Flags().StringVar(&f.pullCredentials, "image-pull-credential-file", "",
		"Docker configuration file with the password of the registry")
}

func (f *imageFlags) addVersions(command *cobra.Command) {
	command.Flags().StringVar(&f.registry, "image-registry", defaultRegistry, "registry with the images of Capstan, or a copy of them")
	options.Complete(command, "image-registry", cobra.NoFileCompletions)
	f.versions.add(command)
}

// values are the images of a chart.
func (f *imageFlags) values() (map[string]any, error) {
	tag, err := f.versions.imageTag(program.Version())
	if err != nil {
		return nil, err
	}
	images := map[string]any{"registry": strings.TrimSuffix(f.registry, "/"), "tag": tag}
	if f.pullCredentials == "" {
		return images, nil
	}
	content, err := os.ReadFile(f.pullCredentials)
	if err != nil {
		return nil, fmt.Errorf("--image-pull-credential-file: %w", err)
	}
	if !json.Valid(content) {
		return nil, fmt.Errorf("--image-pull-credential-file: %s is no Docker configuration file, which is JSON", f.pullCredentials)
	}
	images["imageCredentials"] = map[string]any{"createImageCredentials": true, "dockerConfigJson": string(content)}
	return images, nil
}

// noteFlags prints the flags that were set, as clusteradm does.
func noteFlags(global *options.Global, command *cobra.Command) {
	command.Flags().Visit(func(flag *pflag.Flag) { global.Note("flag %s has been set", flag.Name) })
}

// checkKubernetes makes sure that the cluster can be installed in, and returns its version of Kubernetes.
func checkKubernetes(ctx context.Context, cluster *Cluster, oldest *version.Version) (*version.Version, error) {
	text, err := cluster.Version(ctx)
	if err != nil {
		return nil, err
	}
	parsed, err := version.ParseGeneric(text)
	if err != nil {
		return nil, fmt.Errorf("the cluster at %s says that its version is %q, which is none", cluster.Server(), text)
	}
	if parsed.LessThan(oldest) {
		return nil, fmt.Errorf("the cluster at %s runs Kubernetes %s: %s or newer is needed", cluster.Server(), text, oldest)
	}
	if _, err := cluster.Hub().ResourceOf(ctx, installation.KindDeployment); err != nil {
		return nil, fmt.Errorf("the cluster at %s, where %s leads, runs no pods, as a standalone hub does not: choose another with --kubeconfig or "+
			"--context; \"capstan join --local\" runs an agent as a process of this machine: %w", cluster.Server(), cluster.Source(), err)
	}
	return parsed, nil
}

// checkRights fails if the user may not do what applying takes, with a list of what is missing.
func checkRights(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	missing, err := cluster.MissingRights(ctx, objects)
	if err != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("the user of %s may not do all that it takes to install this in %s. Missing:\n  %s\n"+
		"Ask an administrator of the cluster for them, or use another context with --context",
		cluster.Source(), cluster.Server(), strings.Join(missing, "\n  "))
}

// beingDeleted is why nothing is installed by a custom resource that is being deleted: it would be gone once an operator takes its
// finalizers off. remove is the command that does without that operator.
func beingDeleted(of installation.Reference, finalizers []string, remove string) error {
	return fmt.Errorf("%s is being deleted, and waits until its operator takes these finalizers off: %s\nRun this command again when it is gone. "+
		"If that operator does not run any more, this takes it away:\n  %s", of, strings.Join(finalizers, ", "), remove)
}

// checkInstaller refuses to change what another tool manages: it would change it back, or lose track of it.
func checkInstaller(running installation.Running, namespace, deployment, how string) error {
	return checkNotKept(running.Installer(), "Deployment "+namespace+"/"+deployment, how)
}

// checkKlusterletInstaller does the same for a Klusterlet, which may be kept where the operator is not, or where that stays as it is.
func checkKlusterletInstaller(existing *operatorv1.Klusterlet) error {
	by := installation.InstallerOf(existing.Labels, existing.Annotations)
	return checkNotKept(by, "Klusterlet "+existing.Name, "change it with that")
}

// checkCustomInstallers does the same for custom resources of an operator.
func checkCustomInstallers(kind schema.GroupVersionKind, custom ...unstructured.Unstructured) error {
	for i := range custom {
		by := installation.InstallerOf(custom[i].GetLabels(), custom[i].GetAnnotations())
		if err := checkNotKept(by, kind.Kind+" "+custom[i].GetName(), "change it with that"); err != nil {
			return err
		}
	}
	return nil
}

func checkNotKept(by installation.Installer, what, how string) error {
	if by.Name == "" {
		return nil
	}
	condition := ""
	if by.Restores {
		condition = " once that does not keep it any more"
	}
	return fmt.Errorf("%s is kept by %s: %s, or take it over with --force%s", what, by.Name, how, condition)
}

// checkNamespace fails if a namespace is missing and is not to be created.
func (f *installFlags) checkNamespace(ctx context.Context, cluster *Cluster, name string) error {
	if f.createNamespace {
		return nil
	}
	found, err := cluster.Get(ctx, installation.Reference{GroupVersionKind: installation.KindNamespace, Name: name})
	if err == nil && found == nil {
		err = fmt.Errorf("the cluster has no namespace %s: create it, or leave out --create-namespace=false", name)
	}
	return err
}

// applyAll applies objects and shows what became of each; those that are applied go to the file of --output-file.
func applyAll(ctx context.Context, global *options.Global, cluster *Cluster, objects []*unstructured.Unstructured,
	outputFile string) error {
	progress := global.Progress()
	defer progress.Close()
	changes := map[installation.Change]int{}
	progress.Wait(cluster.Server(), "applying")
	err := cluster.Apply(ctx, objects, func(of installation.Reference, change installation.Change) {
		changes[change]++
		progress.Wait(cluster.Server(), fmt.Sprintf("%s %s", of, change))
	})
	if err != nil {
		return err
	}
	progress.Done(cluster.Server(), fmt.Sprintf("%d objects created, %d changed, %d as they should be", changes[installation.Created],
		changes[installation.Changed], changes[installation.Unchanged]))
	progress.Close()
	return writeObjects(global, outputFile, objects)
}

// takeOver takes objects that --force has applied from the releases of Helm that they are of, and from other tools. Helm's record of a
// release stays, which may have installed more than these objects. Where the operator stays as it is, what is not of the agent is left to
// its release, which is kept from deleting the agent.
func takeOver(ctx context.Context, global *options.Global, cluster *Cluster, objects []*unstructured.Unstructured) error {
	var operator installation.Running // that stays
	if len(ofKind(objects, installation.KindDeployment)) == 0 {
		objects = slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return !isOfAgent(o) })
		var err error
		if operator, err = cluster.Deployed(ctx, fleet.NamespaceOperators, klusterletOperator); err != nil {
			return err
		}
	}
	releases, err := releasesOf(ctx, cluster, objects)
	if err != nil {
		return err
	}
	for _, release := range releases {
		ofOperator := operator.Release() == release
		if err := cluster.TakeFromHelm(ctx, release, objects, ofOperator); err != nil {
			return err
		}
		if ofOperator {
			noteRecords(ctx, global, cluster, release, "\"helm upgrade\" would change what was taken over", releaseWithoutAgent)
		} else {
			noteRecords(ctx, global, cluster, release, harmOfRecord, deletionOfRecord(release))
		}
	}
	return cluster.TakeFromTools(ctx, objects)
}

// harmOfRecord is what comes of Helm's record of a release that was taken over.
const harmOfRecord = "\"helm upgrade\" would change what was taken over, and \"helm uninstall\" delete it"

// releaseWithoutAgent is how the release of an operator that stays loses the agent.
const releaseWithoutAgent = "The operator is of that release, too. Have it leave out the agent: with the value klusterlet.create=false, " +
	"and without bootstrapHubKubeConfig and grpcConfig. Helm then leaves what was taken over, by its annotation helm.sh/resource-policy."

// isOfAgent reports whether an object of the chart klusterlet is the Klusterlet, what its agent joins with, or the namespace of that.
func isOfAgent(object *unstructured.Unstructured) bool {
	switch object.GroupVersionKind() {
	case installation.KindKlusterlet:
		return true
	case installation.KindNamespace:
		return object.GetName() != fleet.NamespaceOperators
	}
	return object.GetNamespace() != "" && object.GetNamespace() != fleet.NamespaceOperators
}

// deletionOfRecord says how Helm's record of a release is deleted that nothing is of any more.
func deletionOfRecord(release installation.Release) string {
	return fmt.Sprintf("This deletes it, and nothing that the release has installed:\n\n"+
		"    kubectl delete secrets --namespace %s --selector %s\n", release.Namespace, release.Selector())
}

// noteRecords names Helm's record of a release that was taken over or removed, or says how to look for it where that may not be read. harm
// is what comes of it, remedy what a user does about that.
func noteRecords(ctx context.Context, global *options.Global, cluster *Cluster, release installation.Release, harm, remedy string) {
	records, err := cluster.List(ctx, installation.KindSecret, release.Namespace, release.Selector())
	if err != nil {
		global.Note("Warning: it could not be found out whether Helm still has a record of release %s in namespace %s: %v\nWith one, %s. "+
			"This finds it:\n\n    kubectl get secrets --namespace %s --selector %s\n", release.Name, release.Namespace, err, harm,
			release.Namespace, release.Selector())
		return
	}
	if len(records) == 0 {
		return
	}
	var names []string
	for i := range records {
		names = append(names, records[i].GetName())
	}
	global.Note("Warning: Helm still has a record of release %s: %s. The record is in namespace %s, in the Secrets %s. %s", release.Name, harm,
		release.Namespace, strings.Join(names, ", "), remedy)
}

// releasesOf are the releases of Helm that objects are of on the cluster, by the kinds that tell: the Secret of the operators does not,
// which is a part of the releases of both.
func releasesOf(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) (releases []installation.Release, _ error) {
	for _, kind := range installation.ReleaseFinders {
		for _, object := range ofKind(objects, kind) {
			if kind == installation.KindSecret && object.GetNamespace() == fleet.NamespaceOperators {
				continue
			}
			live, err := cluster.Get(ctx, installation.ReferenceTo(&object))
			if err != nil {
				return nil, err
			}
			if live == nil {
				continue
			}
			if release := installation.ReleaseOf(live); release.Name != "" && !slices.Contains(releases, release) {
				releases = append(releases, release)
			}
		}
	}
	return releases, nil
}

// writeObjects writes objects to the file of --output-file, if there is one.
func writeObjects(global *options.Global, file string, objects []*unstructured.Unstructured) error {
	plain := make([]any, len(objects))
	for i := range objects {
		plain[i] = objects[i].Object
	}
	return global.WriteApplied(file, plain)
}

// printObjects shows what would be applied.
func printObjects(global *options.Global, objects []*unstructured.Unstructured) error {
	text, err := installation.Format(objects)
	if err != nil {
		return err
	}
	global.Say("%s", strings.TrimSpace(text))
	return nil
}

// ofKind are the objects of a kind.
func ofKind(objects []*unstructured.Unstructured, kind schema.GroupVersionKind) (found []unstructured.Unstructured) {
	for _, object := range objects {
		if object.GroupVersionKind() == kind {
			found = append(found, *object)
		}
	}
	return found
}

// waiting is what a command does once it has applied everything, in several stages.
type waiting struct {
	*options.Global
	cluster *Cluster
	// before are the pulls that had failed before the command applied anything.
	before installation.FailedPulls
	// version is that of the operator that the command installs; empty if it leaves the operator as it is.
	version string
}

// newWaiting prepares to wait for pods in some namespaces. The command has not applied anything yet.
func newWaiting(ctx context.Context, global *options.Global, cluster *Cluster, namespaces ...string) (*waiting, error) {
	before, err := cluster.FailedPulls(ctx, namespaces...)
	return &waiting{Global: global, cluster: cluster, before: before}, err
}

// awaitRollout waits for a Deployment with progress, and reports meanwhile what its pods lack.
func (w *waiting) awaitRollout(ctx context.Context, namespace, name string) error {
	progress := w.Progress()
	defer progress.Close()
	report := func(problem string) { progress.Warn(name, problem) }
	pods := []installation.MonitoredPods{{Namespace: namespace, Deployment: name}}
	err := w.cluster.MonitorPods(ctx, pods, w.before, report, func(ctx context.Context) error {
		return w.cluster.AwaitRollout(ctx, namespace, name, func(state string) { progress.Report(name, state) })
	})
	if err == nil {
		progress.Done(name, "running")
	}
	return err
}

// awaitConditions waits with progress until a custom resource has the desired conditions, and what they are about is there: they
// may be from before. Meanwhile, and on a time-out, it says what the Deployments in the namespaces lack.
func (w *waiting) awaitConditions(ctx context.Context, of installation.Reference, desired []installation.DesiredCondition,
	namespaces ...string) error {
	progress := w.Progress()
	defer progress.Close()
	report := func(problem string) { progress.Warn(of.Name, problem) }
	reportMissing := func(missing string) { progress.Report(of.Name, missing) }
	var pods []installation.MonitoredPods
	for _, namespace := range namespaces {
		pods = append(pods, installation.MonitoredPods{Namespace: namespace, Owner: of})
	}
	err := w.cluster.MonitorPods(ctx, pods, w.before, report, func(ctx context.Context) error {
		if err := w.cluster.AwaitConditions(ctx, of, desired, w.version, reportMissing); err != nil {
			return err
		}
		if err := awaitRelated(ctx, w.cluster, of, reportMissing); err != nil {
			return err
		}
		return w.cluster.AwaitConditions(ctx, of, desired, w.version, reportMissing)
	})
	if err == nil {
		progress.Done(of.Name, "all conditions are good")
		return nil
	}
	return fmt.Errorf("%w%s", err, deploymentReasons(ctx, w.cluster, namespaces))
}

// awaitRelated waits until the Deployments that an operator has made for a custom resource run, in namespaces that stay.
func awaitRelated(ctx context.Context, cluster *Cluster, of installation.Reference, report func(string)) error {
	custom, err := cluster.Get(ctx, of)
	if err != nil || custom == nil {
		return err
	}
	refs, err := related(ctx, cluster, custom)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if ref.GroupVersionKind != installation.KindDeployment {
			continue
		}
		report("waiting for " + ref.String())
		namespace := installation.Reference{GroupVersionKind: installation.KindNamespace, Name: ref.Namespace}
		stays := func(found *unstructured.Unstructured) bool { return found.GetDeletionTimestamp() == nil }
		if err := cluster.AwaitObject(ctx, namespace, stays); err != nil {
			return fmt.Errorf("%s: %w: it does not exist, or is being deleted", namespace, err)
		}
		if err := cluster.AwaitRollout(ctx, ref.Namespace, ref.Name, func(state string) { report(ref.Name + ": " + state) }); err != nil {
			return err
		}
	}
	return nil
}

// deploymentReasons says what the Deployments in some namespaces lack, each in lines of its own.
func deploymentReasons(ctx context.Context, cluster *Cluster, namespaces []string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnosisTimeout)
	defer cancel()
	var text strings.Builder
	for _, namespace := range namespaces {
		deployments, err := cluster.List(ctx, installation.KindDeployment, namespace, "")
		if err != nil {
			continue
		}
		for i := range deployments {
			for _, reason := range cluster.Reasons(ctx, namespace, deployments[i].GetName()) {
				fmt.Fprintf(&text, "\n  Deployment %s/%s: %s", namespace, deployments[i].GetName(), strings.ReplaceAll(reason, "\n", "\n  "))
			}
		}
	}
	return text.String()
}

// diagnosisTimeout is how long it may take to find out why something did not come about in time.
const diagnosisTimeout = 10 * time.Second

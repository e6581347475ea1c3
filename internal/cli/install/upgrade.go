package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// upgrading is one run of "capstan upgrade".
type upgrading struct {
	*options.Global
	installFlags

	what          upgradable
	wait, force   bool
	registryGiven bool // with --image-registry
	in            *Cluster
}

// upgradable is what can be upgraded: an operator, and what it runs.
type upgradable struct {
	command, operator string
	valuesFlag        string           // that clusteradm has for --values-file
	oldest            *version.Version // of Kubernetes
	kind              schema.GroupVersionKind
	custom            string // the values of the custom resource, in those of the chart
	images            []string
	conditions        []installation.DesiredCondition
	namespaces        func(*unstructured.Unstructured) []string
}

var (
	upgradableHub = upgradable{
		command: "clustermanager", operator: clusterManagerOperator, valuesFlag: "cluster-manager-values-file", oldest: oldestForHubs,
		kind: installation.KindClusterManager, custom: "clusterManager",
		images:     []string{"registrationImagePullSpec", "workImagePullSpec", "placementImagePullSpec", "addOnManagerImagePullSpec"},
		conditions: hubConditions,
		namespaces: func(manager *unstructured.Unstructured) []string {
			return []string{fleet.NamespaceHub, manager.GetName()}
		},
	}
	upgradableAgent = upgradable{
		command: "klusterlet", operator: klusterletOperator, valuesFlag: "klusterlet-values-file", oldest: oldestForAgents,
		kind: installation.KindKlusterlet, custom: "klusterlet",
		images:     []string{"registrationImagePullSpec", "workImagePullSpec", "imagePullSpec"},
		conditions: agentConditions,
		namespaces: func(klusterlet *unstructured.Unstructured) []string {
			return []string{installation.NamespaceOfInstalled(klusterlet)}
		},
	}
)

// allNamespaces are those of the operator and of what it runs for some custom resources.
func (u *upgradable) allNamespaces(custom []unstructured.Unstructured) []string {
	all := []string{fleet.NamespaceOperators}
	for i := range custom {
		all = append(all, u.namespaces(&custom[i])...)
	}
	return all
}

// waiting prepares to wait for the operator, if it is among the objects, and for what it runs for some custom resources.
func (u *upgradable) waiting(ctx context.Context, global *options.Global, cluster *Cluster, objects []*unstructured.Unstructured,
	custom []unstructured.Unstructured) (*waiting, error) {
	w, err := newWaiting(ctx, global, cluster, u.allNamespaces(custom)...)
	if err != nil {
		return nil, err
	}
	w.version, err = operatorVersion(objects, u.operator)
	return w, err
}

const upgradeLong = `Upgrade the operator in the cluster of the kubeconfig, and what it runs, to the images of this program's version.

The configuration stays: that of the %[1]s, whose images alone are changed, and that of the operator which the chart has values for, such
as replicas, resources, placement and pull secrets, as far as --values-file does not say otherwise. Without --image-registry, the registry
stays where the image of the operator that runs has one of Capstan's names; where it has another, name a registry of your own by that.
What Helm, the Operator Lifecycle Manager, Argo CD or Flux keeps is upgraded by these.

A minor version must not be skipped: objects that one release stores are only sure to be read by the next. The command refuses that, and
the way back, as the operator would, unless --force insists. --wait waits until the new version runs, for --timeout seconds at most.`

// NewUpgradeClusterManagerCommand is "capstan upgrade clustermanager".
func NewUpgradeClusterManagerCommand(global *options.Global) *cobra.Command {
	return newUpgradeCommand(global, upgradableHub)
}

// NewUpgradeKlusterletCommand is "capstan upgrade klusterlet".
func NewUpgradeKlusterletCommand(global *options.Global) *cobra.Command {
	return newUpgradeCommand(global, upgradableAgent)
}

func newUpgradeCommand(global *options.Global, what upgradable) *cobra.Command {
	run := &upgrading{Global: global, what: what}
	command := &cobra.Command{
		Use:               what.command,
		Short:             "Upgrade the operator of " + what.kind.Kind + "s, and what it runs",
		Long:              fmt.Sprintf(upgradeLong, what.kind.Kind),
		Example:           "  capstan upgrade " + what.command + " --wait",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	run.images.add(command)
	run.valuesFlag = "values-file"
	flags := command.Flags()
	flags.StringVar(&run.valuesFile, "values-file", "", "YAML file with values of the chart "+what.operator+" for the operator")
	flags.StringVar(&run.valuesFile, what.valuesFlag, "", "the same as --values-file, as clusteradm names it")
	command.MarkFlagsMutuallyExclusive(run.valuesFlag, what.valuesFlag)
	flags.StringVar(&run.outputFile, "output-file", "", "write what was applied to this file, which only you can read")
	flags.BoolVar(&run.wait, "wait", false, "wait until the new version runs, for --timeout seconds at most")
	flags.BoolVar(&run.force, "force", false, "skip minor versions, go back, and take over what other tools have installed")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := options.CheckOutputFile(run.outputFile); err != nil {
			return err
		}
		if command.Flags().Changed(what.valuesFlag) {
			run.valuesFlag = what.valuesFlag
		}
		run.registryGiven = command.Flags().Changed("image-registry")
		return run.RunLimited(command, run.upgrade)
	}
	return command
}

func (u *upgrading) upgrade(ctx context.Context) error {
	var err error
	if u.in, err = connect(u.InstallTarget()); err != nil {
		return err
	}
	if _, err = checkKubernetes(ctx, u.in, u.what.oldest); err != nil {
		return err
	}
	running, err := u.in.Deployed(ctx, fleet.NamespaceOperators, u.what.operator)
	if err != nil {
		return err
	}
	if !running.Exists {
		return fmt.Errorf("the cluster at %s has no operator to upgrade: there is no Deployment %s/%s. Choose another cluster with --context, "+
			"or install with \"capstan init\" and \"capstan join\"", u.in.Server(), fleet.NamespaceOperators, u.what.operator)
	}
	objects, err := u.render(ctx, running)
	if err != nil {
		return err
	}
	custom, err := u.in.List(ctx, u.what.kind, "", "")
	if err != nil {
		return err
	}
	operator, images := u.splitCustom(objects)
	if !u.force {
		if err := u.preflight(ctx, running, operator, custom); err != nil {
			return err
		}
	}
	if u.DryRun {
		return u.printPlan(operator, custom, images)
	}
	return u.apply(ctx, operator, custom, images)
}

// splitCustom takes the custom resource out of the rendered objects, of which only the images count.
func (u *upgrading) splitCustom(objects []*unstructured.Unstructured) (operator []*unstructured.Unstructured, images map[string]any) {
	images = map[string]any{}
	for _, object := range objects {
		if object.GroupVersionKind() != u.what.kind {
			operator = append(operator, object)
			continue
		}
		for _, field := range u.what.images {
			if image, found, _ := unstructured.NestedString(object.Object, "spec", field); found {
				images[field] = image
			}
		}
	}
	return operator, images
}

// preflight refuses upgrades that could do harm, before anything is changed.
func (u *upgrading) preflight(ctx context.Context, running installation.Running, operator []*unstructured.Unstructured,
	custom []unstructured.Unstructured) error {
	if err := checkInstaller(running, fleet.NamespaceOperators, u.what.operator, "upgrade with that"); err != nil {
		return err
	}
	if err := checkCustomInstallers(u.what.kind, custom...); err != nil {
		return err
	}
	image, err := operatorImage(operator, u.what.operator)
	if err != nil {
		return err
	}
	if err := checkSkew(running.Image, image, u.what.kind.Kind, custom); err != nil {
		return fmt.Errorf("%w; use the capstan of that version, or insist with --force", err)
	}
	return checkRights(ctx, u.in, operator)
}

// checkReplaced refuses to replace an operator by one among the objects that would refuse what it has installed.
func (u *upgradable) checkReplaced(ctx context.Context, cluster *Cluster, running installation.Running,
	objects []*unstructured.Unstructured) error {
	if !running.Exists || installation.Find(objects, installation.KindDeployment.Kind, u.operator) == nil {
		return nil
	}
	image, err := operatorImage(objects, u.operator)
	if err != nil {
		return err
	}
	custom, err := cluster.List(ctx, u.kind, "", "")
	if err != nil {
		return err
	}
	if err := checkSkew(running.Image, image, u.kind.Kind, custom); err != nil {
		return fmt.Errorf("%w; use the capstan of that version, or insist with \"capstan upgrade %s --force\"", err, u.command)
	}
	return nil
}

// operatorImage is the image of an operator, or of a standalone hub, among the objects of its chart.
func operatorImage(objects []*unstructured.Unstructured, operator string) (string, error) {
	deployment := installation.Find(objects, installation.KindDeployment.Kind, operator)
	if deployment == nil {
		return "", fmt.Errorf("the chart has no Deployment %s", operator)
	}
	return firstImage(deployment)
}

// operatorVersion is the version of an operator among the objects, which is the tag of its image; empty if it is not among them.
func operatorVersion(objects []*unstructured.Unstructured, operator string) (string, error) {
	deployment := installation.Find(objects, installation.KindDeployment.Kind, operator)
	if deployment == nil {
		return "", nil
	}
	image, err := firstImage(deployment)
	_, tag := splitImage(image)
	return tag, err
}

func firstImage(deployment *unstructured.Unstructured) (string, error) {
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		if fields, ok := container.(map[string]any); ok {
			image, _ := fields["image"].(string)
			return image, nil
		}
	}
	return "", errors.New("the Deployment of the operator has no container")
}

// checkSkew refuses what the next operator would refuse, too: to take over what the one before has installed, by its image if that has the
// same name, and by the custom resources of the kind.
func checkSkew(running, next, kind string, custom []unstructured.Unstructured) error {
	runningRepository, runningTag := splitImage(running)
	nextRepository, nextTag := splitImage(next)
	if path.Base(runningRepository) == path.Base(nextRepository) {
		if err := upgrade.Step(runningTag, nextTag); err != nil {
			return err
		}
	}
	for i := range custom {
		annotations := custom[i].GetAnnotations()
		if err := upgrade.Check(annotations[upgrade.AnnotationVersion], nextTag, annotations); err != nil {
			return fmt.Errorf("%s %s: %w", kind, custom[i].GetName(), err)
		}
	}
	return nil
}

// splitImage divides an image into its repository and its tag, which is empty if it has none.
func splitImage(image string) (repository, tag string) {
	parsed, err := reference.Parse(image)
	if err != nil {
		return image, ""
	}
	if named, ok := parsed.(reference.Named); ok {
		repository = named.Name()
	}
	if tagged, ok := parsed.(reference.Tagged); ok {
		tag = tagged.Tag()
	}
	return repository, tag
}

// printPlan shows what would be changed.
func (u *upgrading) printPlan(operator []*unstructured.Unstructured, custom []unstructured.Unstructured, images map[string]any) error {
	content, err := u.change(operator, images)
	if err != nil {
		return err
	}
	for i := range custom {
		u.Note("would change %s %s: %s", u.what.kind.Kind, custom[i].GetName(), content)
	}
	return printObjects(u.Global, operator)
}

func (u *upgrading) apply(ctx context.Context, operator []*unstructured.Unstructured, custom []unstructured.Unstructured,
	images map[string]any) error {
	var w *waiting
	if u.wait {
		var err error
		if w, err = u.what.waiting(ctx, u.Global, u.in, operator, custom); err != nil {
			return err
		}
	}
	if err := applyAll(ctx, u.Global, u.in, operator, u.outputFile); err != nil {
		return err
	}
	patch, err := u.change(operator, images)
	if err != nil {
		return err
	}
	for i := range custom {
		if err := u.in.Patch(ctx, installation.Reference{GroupVersionKind: u.what.kind, Name: custom[i].GetName()}, patch); err != nil {
			return err
		}
	}
	if u.force {
		if err := u.takeOver(ctx, operator, custom); err != nil {
			return err
		}
	}
	if u.wait {
		if err := u.await(ctx, w, custom); err != nil {
			return err
		}
	}
	u.Say("The operator and %d %ss have been upgraded completed successfully", len(custom), u.what.kind.Kind)
	if !u.wait {
		u.Note("Nothing has been waited for: the new version may not run yet. With --wait, this command waits until it does.")
	}
	return nil
}

// takeOver takes the operator, and the custom resources that it was installed with, from Helm.
func (u *upgrading) takeOver(ctx context.Context, operator []*unstructured.Unstructured, custom []unstructured.Unstructured) error {
	objects := slices.Clone(operator)
	for i := range custom {
		objects = append(objects, &custom[i])
	}
	return takeOver(ctx, u.Global, u.in, objects)
}

// change is the patch of a custom resource. With --force it lets the new operator skip a minor version, too.
func (u *upgrading) change(operator []*unstructured.Unstructured, images map[string]any) ([]byte, error) {
	change := map[string]any{"spec": images}
	version, err := operatorVersion(operator, u.what.operator)
	if err != nil {
		return nil, err
	}
	if u.force && version != "" {
		change["metadata"] = map[string]any{"annotations": map[string]any{upgrade.AnnotationSkip: version}}
	}
	return json.Marshal(change)
}

func (u *upgrading) await(ctx context.Context, w *waiting, custom []unstructured.Unstructured) error {
	if err := w.awaitRollout(ctx, fleet.NamespaceOperators, u.what.operator); err != nil {
		return err
	}
	for i := range custom {
		of := installation.Reference{GroupVersionKind: u.what.kind, Name: custom[i].GetName()}
		namespaces := u.what.namespaces(&custom[i])
		if err := w.awaitConditions(ctx, of, u.what.conditions, namespaces...); err != nil {
			return err
		}
		for _, namespace := range namespaces {
			if err := w.awaitRollouts(ctx, namespace); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitRollouts waits until no pod of the version before is left: the conditions are good as long as one works.
func (w *waiting) awaitRollouts(ctx context.Context, namespace string) error {
	deployments, err := w.cluster.List(ctx, installation.KindDeployment, namespace, "")
	if err != nil {
		return err
	}
	for i := range deployments {
		if err := w.awaitRollout(ctx, namespace, deployments[i].GetName()); err != nil {
			return err
		}
	}
	return nil
}

package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/joincommand"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// initialization is one run of "capstan init".
type initialization struct {
	*options.Global
	installFlags

	wait, force       bool
	useBootstrapToken bool
	joinCommandFile   string
	format            *output.Choice
	drivers           hubDriverFlags
	singleton         singletonFlags
	changed           func(flag string) bool // reports which flags were set

	shown      bool   // the ConfigMap cluster-info, to everybody
	correction string // of that ConfigMap, where clusters cannot join by it
	untried    error  // why it could not be tried from here whether they can
}

const initLong = `Install a hub in the cluster of the kubeconfig: the operator, and the ClusterManager that tells it what to run. The last lines that
are printed are the command with which a cluster joins the hub; "capstan get token" prints it again.

What is installed is what the chart cluster-manager consists of, by server-side apply and without Helm. So the command can be run
again, to change a flag or after a failure, and takes over what clusteradm has applied. What Helm or the Operator Lifecycle Manager has
installed is left alone, unless --force takes it over.

Before anything is changed, the command makes sure that the cluster can be reached and is new enough, and that the user may do all that
it takes; it lists the permissions that are missing. --force leaves these checks out. Where the cluster does not publish how it is
reached, in the ConfigMap kube-public/cluster-info, it is created from the kubeconfig: clusters that join look there. A kubeconfig
without certificate authority gets that which the cluster gives its pods. What is published has to verify the server.

--wait waits until the hub works, for --timeout seconds at most. If it does not by then, the error says why: images that cannot be
pulled, programs that end, pods that no node takes, quotas.

Bundle versions are releases of Open Cluster Management. This release of Capstan implements all of them that are known, so they choose
its own images; latest chooses the images of that tag, and --bundle-version-overrides FILE with {"ocm": "TAG"} any other tag.

Clusters register with this hub by certificate requests, the driver csr of --registration-drivers, or through its gRPC server, the driver
grpc: those need no access to the API server of the hub afterwards. Say how they reach that server: --grpc-server names the host by
which you expose it, and --grpc-endpoint-type loadBalancer has it exposed by a load balancer. With the driver awsirsa, a hub that is an
EKS cluster registers other EKS clusters by AWS IAM.

A values file with clusterManager.mode Hosted, and addresses of the webhooks in clusterManager.deployOption.hosted, runs the hub in the
cluster of the kubeconfig for the API of another one, to which the kubeconfig in the Secret cluster-manager/external-hub-kubeconfig leads.
Store that first. Clusters join there.

With --singleton it installs a standalone hub instead, which keeps everything in one pod: what the chart capstan-hub consists of, with
values of the flags -f, --set and their like. Run again, it keeps the values, the registry and the tag of the image that were given before
and are not given now. --bundle-version default goes back to the image of this program's version. It skips no minor version, and does not
go back to an older one, unless --force insists.`

// NewInitCommand is "capstan init".
func NewInitCommand(global *options.Global) *cobra.Command {
	run := &initialization{Global: global}
	command := &cobra.Command{
		Use:   "init",
		Short: "Install a hub in a cluster",
		Long:  initLong,
		Example: "  capstan init --wait\n  capstan init --wait --context hub --image-registry registry.example.com/capstan\n" +
			"  capstan init --dry-run      # show the objects that would be applied",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	run.add(command, "cluster-manager-values-file", hubFeatureGates)
	flags := command.Flags()
	flags.BoolVar(&run.force, "force", false, "leave out the checks of flags and cluster, and take over what other tools have installed")
	flags.BoolVar(&run.useBootstrapToken, "use-bootstrap-token", false, "create a bootstrap token to join with, instead of a service account")
	flags.StringVar(&run.joinCommandFile, "output-join-command-file", "",
		"write the join command to this file, as a script that only you can read; its argument is the name of the cluster")
	flags.BoolVar(&run.wait, "wait", false, "wait until the hub works, for --timeout seconds at most")
	run.drivers.add(command)
	run.singleton.add(command)
	run.format = options.AddOutputFlag(command, output.Text, output.JSON)
	command.RunE = func(command *cobra.Command, _ []string) error {
		run.changed = command.Flags().Changed
		if err := run.check(command); err != nil && !run.force {
			return err
		}
		noteFlags(global, command)
		install := run.install
		if run.singleton.enabled {
			install = run.installSingleton
		}
		return run.RunLimited(command, install)
	}
	return command
}

// check finds what is wrong with the flags before anything is sent to the cluster.
func (i *initialization) check(command *cobra.Command) error {
	if i.drivers.aws.hubARN == "" && i.drivers.has(driverAWS) {
		i.drivers.aws.hubARN = currentCluster(i.Global)
	}
	err := errors.Join(i.installFlags.check(), i.drivers.check(i.gates, i.singleton.enabled), i.singleton.check())
	if err == nil && i.singleton.enabled && i.drivers.has(driverGRPC) {
		err = errors.New("--registration-drivers: the hub of --singleton has no gRPC server for the driver grpc")
	}
	if err != nil {
		return err
	}
	if err := i.singleton.checkOthers(command); err != nil {
		return err
	}
	if i.joinCommandFile == "" {
		return nil
	}
	return i.joinCommandScript().Check()
}

// joinCommandScript is the file of --output-join-command-file. Only its owner runs it: there is a token in it.
func (i *initialization) joinCommandScript() options.OutputFile {
	return options.OutputFile{Flag: "--output-join-command-file", Path: i.joinCommandFile, Mode: 0o700}
}

func (i *initialization) install(ctx context.Context) error {
	cluster, err := connect(i.InstallTarget())
	if err != nil {
		return err
	}
	if _, err := checkKubernetes(ctx, cluster, oldestForHubs); err != nil {
		return err
	}
	objects, err := i.render()
	if err != nil {
		return err
	}
	if i.DryRun {
		return printObjects(i.Global, objects)
	}
	if !i.force {
		if err := i.preflight(ctx, cluster, objects); err != nil {
			return err
		}
	}
	if manager := hostedManager(objects); manager != nil {
		return i.installHosted(ctx, cluster, manager, objects)
	}
	if err := i.publish(ctx, cluster); err != nil {
		return err
	}
	if err := i.apply(ctx, cluster, objects); err != nil {
		return err
	}
	return i.printJoinCommand(ctx, cluster)
}

// installHosted installs the operator of a hub whose API is in another cluster, where clusters join.
func (i *initialization) installHosted(ctx context.Context, cluster *Cluster, manager *unstructured.Unstructured,
	objects []*unstructured.Unstructured) error {
	hub, err := hubOf(ctx, cluster, manager)
	if err != nil {
		return fmt.Errorf("the hub, which is in another cluster, cannot be reached: %w\nStore a kubeconfig of it, as the hosted hub uses it:\n"+
			"  kubectl create namespace %[2]s\n  kubectl --namespace %[2]s create secret generic %[3]s --from-file=%[4]s=FILE",
			err, manager.GetName(), fleet.SecretExternalHubKubeconfig, fleet.KeyKubeconfig)
	}
	if err := i.publish(ctx, hub); err != nil {
		return err
	}
	joining, components := splitForHostedHub(objects)
	if err := applyAll(ctx, i.Global, hub, joining, ""); err != nil {
		return err
	}
	if err := i.apply(ctx, cluster, components); err != nil {
		return err
	}
	return i.printJoinCommand(ctx, hub)
}

// apply applies the operator and the ClusterManager, and waits with --wait until they are in effect.
func (i *initialization) apply(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	managers := ofKind(objects, installation.KindClusterManager)
	var w *waiting
	if i.wait {
		var err error
		if w, err = upgradableHub.waiting(ctx, i.Global, cluster, objects, managers); err != nil {
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
	if !i.wait {
		return nil
	}
	return w.awaitHub(ctx, managers)
}

// render returns what is to be applied.
func (i *initialization) render() ([]*unstructured.Unstructured, error) {
	values, err := i.values()
	if err != nil {
		return nil, err
	}
	return installer.Objects(clusterManagerOperator, values)
}

// values are those of the chart cluster-manager.
func (i *initialization) values() (map[string]any, error) {
	images, err := i.images.values()
	if err != nil {
		return nil, err
	}
	manager := map[string]any{
		"resourceRequirement": i.resources(),
		string(registrationPart): map[string]any{
			"featureGates":        i.gates.of(registrationPart),
			"registrationDrivers": i.drivers.values(),
		},
		string(workPart):      map[string]any{"featureGates": i.gates.of(workPart)},
		string(placementPart): map[string]any{"featureGates": i.gates.of(placementPart)},
		string(addOnPart):     map[string]any{"featureGates": i.gates.of(addOnPart)},
	}
	if i.drivers.has(driverGRPC) {
		manager["serverConfiguration"] = i.drivers.grpc.server()
	}
	values := map[string]any{
		"createNamespace":      i.createNamespace,
		"images":               images,
		"enableSyncLabels":     i.syncLabels,
		"createBootstrapToken": i.useBootstrapToken,
		"createBootstrapSA":    !i.useBootstrapToken,
		"clusterManager":       manager,
	}
	return values, i.override(values)
}

// preflight makes sure that applying can succeed, before anything is changed.
func (i *initialization) preflight(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	if err := i.checkNamespace(ctx, cluster, fleet.NamespaceOperators); err != nil {
		return err
	}
	if err := checkManagerNotDeleted(ctx, cluster, objects); err != nil {
		return err
	}
	running, err := cluster.Deployed(ctx, fleet.NamespaceOperators, clusterManagerOperator)
	if err != nil {
		return err
	}
	if err := checkInstaller(running, fleet.NamespaceOperators, clusterManagerOperator, "upgrade the hub with that"); err != nil {
		return err
	}
	if err := checkManagers(ctx, cluster, objects); err != nil {
		return err
	}
	if err := upgradableHub.checkReplaced(ctx, cluster, running, objects); err != nil {
		return err
	}
	return checkRights(ctx, cluster, objects)
}

// checkManagerNotDeleted refuses to install a hub while its ClusterManager is being deleted.
func checkManagerNotDeleted(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GroupVersionKind() != installation.KindClusterManager {
			continue
		}
		of := installation.ReferenceTo(object)
		existing, err := cluster.Get(ctx, of)
		if err != nil {
			return err
		}
		if existing != nil && existing.GetDeletionTimestamp() != nil {
			return beingDeleted(of, existing.GetFinalizers(), "capstan clean --force --name "+of.Name)
		}
	}
	return nil
}

// checkManagers refuses to change a ClusterManager that another tool keeps, which may not keep the operator, or whose hub would have to
// change its mode.
func checkManagers(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	for _, manager := range ofKind(objects, installation.KindClusterManager) {
		existing, err := cluster.Get(ctx, installation.ReferenceTo(&manager))
		if err != nil {
			return err
		}
		if existing == nil {
			continue
		}
		if err := checkCustomInstallers(installation.KindClusterManager, *existing); err != nil {
			return err
		}
		if err := checkMode(existing, &manager); err != nil {
			return err
		}
	}
	return nil
}

// checkMode fails if a hub is installed in another mode than it would be: it says on which cluster the API of the hub is.
func checkMode(existing, manager *unstructured.Unstructured) error {
	installed := existing.GetAnnotations()[fleet.AnnotationInstalledMode]
	if installed == "" || installation.IsHosted(existing) == installation.IsHosted(manager) {
		return nil
	}
	return fmt.Errorf("%s is installed in the mode %s, which cannot change: set clusterManager.mode to %s in the file of "+
		"--cluster-manager-values-file; or remove the hub first, with all that is stored in it, by \"capstan clean --name %s\"",
		installation.ReferenceTo(existing), installed, installed, existing.GetName())
}

// hubConditions are those of the ClusterManager of a hub that works.
var hubConditions = []installation.DesiredCondition{
	{Type: "Applied", Status: metav1.ConditionTrue}, {Type: "Progressing", Status: metav1.ConditionFalse},
	{Type: "HubRegistrationDegraded", Status: metav1.ConditionFalse}, {Type: "HubPlacementDegraded", Status: metav1.ConditionFalse},
}

// awaitHub waits until the operator runs, and what it runs.
func (w *waiting) awaitHub(ctx context.Context, managers []unstructured.Unstructured) error {
	if err := w.awaitRollout(ctx, fleet.NamespaceOperators, clusterManagerOperator); err != nil {
		return err
	}
	for k := range managers {
		manager := &managers[k]
		err := w.awaitConditions(ctx, installation.ReferenceTo(manager), hubConditions, upgradableHub.namespaces(manager)...)
		if err != nil {
			return err
		}
	}
	return nil
}

// printJoinCommand prints what a cluster joins with, and writes it to the file that is named for it.
func (i *initialization) printJoinCommand(ctx context.Context, cluster *Cluster) error {
	info, err := joincommand.New(ctx, cluster.Hub(), i.useBootstrapToken, i.Clock.Now())
	if err != nil {
		return fmt.Errorf("the hub is installed; what clusters join with is not to be had: %w", err)
	}
	info.Wait = i.wait
	if err := i.verifyJoinCommand(ctx, info); err != nil {
		return err
	}
	if err := i.sayJoinCommand(info); err != nil {
		return err
	}
	return i.writeJoinCommand(info)
}

func (i *initialization) sayJoinCommand(info joincommand.Info) error {
	if i.format.Format() == output.JSON {
		content, err := json.Marshal(info)
		if err != nil {
			return err
		}
		i.Say("%s", content)
		return nil
	}
	i.Say("The multicluster hub control plane has been initialized successfully!\n\n"+
		"You can now register cluster(s) to the hub control plane. Log onto those cluster(s) and run the following command:\n\n"+
		"    %s\n\nReplace <cluster_name> with a cluster name of your choice. For example, cluster1.", info.CommandLine())
	if i.drivers.has(driverGRPC) {
		i.Say("\nFor a cluster that is to register through the gRPC server, add:\n\n    --registration-auth %s --grpc-server %s", driverGRPC,
			i.drivers.grpc.address())
	}
	if !i.wait {
		i.Note("Nothing has been waited for: the hub may not run yet. With --wait, this command waits until it does.")
	}
	return nil
}

// verifyJoinCommand makes sure that the join command finds the hub, as far as that can be tried from here.
func (i *initialization) verifyJoinCommand(ctx context.Context, info joincommand.Info) error {
	if !i.shown {
		return nil
	}
	if i.untried != nil {
		i.noteUntried(i.untried)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	err := hubapi.Invitation{Server: info.Server, Token: info.Token, Pins: info.Pins}.Verify(ctx)
	switch {
	case errors.Is(err, hubapi.ErrUntrusted):
		return fmt.Errorf("the hub is installed; clusters cannot join with what it publishes in ConfigMap %s/%s: %w\n%s",
			clusterInfo.Namespace, clusterInfo.Name, err, i.correction)
	case err != nil:
		i.noteUntried(err)
	}
	return nil
}

func (i *initialization) noteUntried(why error) {
	i.Note("Warning: the join command could not be tried from here: %v", why)
}

// writeJoinCommand writes the script of --output-join-command-file, if there is to be one.
func (i *initialization) writeJoinCommand(info joincommand.Info) error {
	if i.joinCommandFile == "" {
		return nil
	}
	script := "#!/bin/sh\nexec " + info.Command() + " --cluster-name \"$1\"\n"
	if err := i.joinCommandScript().Write([]byte(script)); err != nil {
		return err
	}
	i.Note("The join command is in %s; its argument is the name of the cluster.", i.joinCommandFile)
	return nil
}

// hubDriverFlags say how clusters register with a hub.
type hubDriverFlags struct {
	drivers       []string
	csrIdentities []string
	grpc          hubGRPCFlags
	aws           hubAWSFlags
}

// has reports whether clusters can register with a driver.
func (f *hubDriverFlags) has(driver string) bool { return slices.Contains(f.drivers, driver) }

func (f *hubDriverFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringSliceVar(&f.drivers, "registration-drivers", []string{driverCSR},
		"how clusters register: csr by certificate requests, grpc through the gRPC server, awsirsa by AWS IAM")
	flags.StringSliceVar(&f.csrIdentities, "auto-approved-csr-identities", nil,
		"users whose clusters are accepted without an administrator; needs --feature-gates ManagedClusterAutoApproval=true")
	f.grpc.add(command)
	f.aws.add(command)
	options.Complete(command, "auto-approved-csr-identities", cobra.NoFileCompletions)
	options.Complete(command, "registration-drivers", cobra.FixedCompletions(drivers, cobra.ShellCompDirectiveNoFileComp))
}

func (f *hubDriverFlags) check(gates *gateFlag, singleton bool) error {
	for _, driver := range f.drivers {
		if err := checkDriver("--registration-drivers", driver); err != nil {
			return err
		}
	}
	if err := f.aws.check(f.has(driverAWS), gates, singleton); err != nil {
		return err
	}
	switch {
	case len(f.drivers) == 0:
		return fmt.Errorf("--registration-drivers: is empty; choose out of %s", strings.Join(drivers, ", "))
	case len(f.csrIdentities) > 0 && !f.has(driverCSR):
		return errors.New("--auto-approved-csr-identities: useless without csr in --registration-drivers")
	case len(f.csrIdentities) > 0 && !gates.enabled("ManagedClusterAutoApproval"):
		return errors.New("--auto-approved-csr-identities: useless without --feature-gates ManagedClusterAutoApproval=true")
	}
	return f.grpc.check(f.has(driverGRPC), gates)
}

// values are the registrationDrivers of a ClusterManager.
func (f *hubDriverFlags) values() []any {
	var values []any
	if f.has(driverCSR) {
		csr := map[string]any{"authType": driverCSR}
		if len(f.csrIdentities) > 0 {
			csr["csr"] = map[string]any{"autoApprovedIdentities": f.csrIdentities}
		}
		values = append(values, csr)
	}
	if f.has(driverGRPC) {
		values = append(values, f.grpc.driver())
	}
	if f.has(driverAWS) {
		values = append(values, f.aws.values())
	}
	return values
}

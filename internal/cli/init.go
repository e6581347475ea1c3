package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/capstan-io/capstan/internal/cli/install"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// initialization is one run of "capstan init".
type initialization struct {
	*app
	installFlags

	force             bool
	useBootstrapToken bool
	joinCommandFile   string
	format            *output.Choice
	drivers           hubDriverFlags
	singleton         singletonFlags
}

const initLong = `Install a hub in the cluster of the kubeconfig: the operator, and the ClusterManager that tells it what to run. The last lines that
are printed are the command with which a cluster joins the hub; "capstan get token" prints it again.

What is installed is the chart cluster-manager, rendered by the program capstan-charts and applied by server-side apply. So the
command can be run again, to change a flag or after a failure, and takes over what clusteradm has applied. What Helm or the Operator
Lifecycle Manager has installed is left alone, unless --force takes it over.

Before anything is changed, the command makes sure that the cluster can be reached and is new enough, and that the user may do all that
it takes; it lists the permissions that are missing. --force leaves these checks out. Where the cluster does not publish how it is
reached, in the ConfigMap kube-public/cluster-info, it is created from the kubeconfig: clusters that join look there.

--wait waits until the hub works, for --timeout seconds at most. If it does not by then, the error says why: images that cannot be
pulled, programs that end, pods that no node takes, quotas.

Bundle versions are releases of Open Cluster Management. This release of Capstan implements all of them that are known, so they choose
its own images; latest chooses the images of that tag, and --bundle-version-overrides FILE with {"ocm": "TAG"} any other tag.

Clusters register with this hub by certificate requests: the driver csr of --registration-drivers. This version has no others, and
refuses awsirsa and grpc rather than wait for clusters that cannot register.

With --singleton it installs a standalone hub instead, which keeps everything in one pod: the chart capstan-hub, as a Helm release.`

// initCommand is "capstan init".
func (a *app) initCommand() *cobra.Command {
	run := &initialization{app: a}
	command := &cobra.Command{
		Use:   "init",
		Short: "Install a hub in a cluster",
		Long:  initLong,
		Example: "  capstan init --wait\n  capstan init --wait --context hub --image-registry registry.example.com/capstan\n" +
			"  capstan init --dry-run      # show the objects that would be applied",
		Args:              flagsOnly,
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
	run.format = addOutputFlag(command, output.Text, output.JSON)
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := run.check(); err != nil && !run.force {
			return err
		}
		a.sayFlags(command)
		a.announceDryRun(command)
		ctx, cancel := a.limited(command.Context())
		defer cancel()
		if run.singleton.enabled {
			return run.installSingleton(ctx)
		}
		return run.install(ctx)
	}
	return command
}

// check finds what is wrong with the flags before the cluster is asked.
func (i *initialization) check() error {
	return errors.Join(i.installFlags.check(), i.drivers.check(i.gates), i.singleton.check())
}

func (i *initialization) install(ctx context.Context) error {
	cluster, err := install.Connect(i.installTarget())
	if err != nil {
		return err
	}
	kubeVersion, err := checkKubernetes(ctx, cluster)
	if err != nil {
		return err
	}
	objects, err := i.render(ctx, kubeVersion)
	if err != nil {
		return err
	}
	if i.dryRun {
		return i.printObjects(objects)
	}
	if !i.force {
		if err := i.preflight(ctx, cluster, objects); err != nil {
			return err
		}
	}
	if err := i.publish(ctx, cluster); err != nil {
		return err
	}
	if err := i.applyAll(ctx, cluster, objects, i.outputFile); err != nil {
		return err
	}
	if i.wait {
		if err := i.awaitHub(ctx, cluster, objects); err != nil {
			return err
		}
	}
	return i.sayJoin(ctx, cluster)
}

// render returns what is to be applied.
func (i *initialization) render(ctx context.Context, kubeVersion string) ([]*unstructured.Unstructured, error) {
	values, err := i.values()
	if err != nil {
		return nil, err
	}
	return renderChart(ctx, "cluster-manager", kubeVersion, values)
}

// values are those of the chart cluster-manager.
func (i *initialization) values() (map[string]any, error) {
	images, err := i.images.values()
	if err != nil {
		return nil, err
	}
	values := map[string]any{
		"createNamespace":      i.createNamespace,
		"images":               images,
		"enableSyncLabels":     i.syncLabels,
		"createBootstrapToken": i.useBootstrapToken,
		"createBootstrapSA":    !i.useBootstrapToken,
		"clusterManager": map[string]any{
			"resourceRequirement": i.resources(),
			string(registrationPart): map[string]any{
				"featureGates":        i.gates.of(registrationPart),
				"registrationDrivers": i.drivers.values(),
			},
			string(workPart):      map[string]any{"featureGates": i.gates.of(workPart)},
			string(placementPart): map[string]any{"featureGates": i.gates.of(placementPart)},
			string(addOnPart):     map[string]any{"featureGates": i.gates.of(addOnPart)},
		},
	}
	return values, i.override(values)
}

// preflight makes sure that applying can succeed, before anything is changed.
func (i *initialization) preflight(ctx context.Context, cluster *install.Cluster, objects []*unstructured.Unstructured) error {
	if err := i.checkNamespace(ctx, cluster); err != nil {
		return err
	}
	running, err := cluster.Deployed(ctx, fleet.NamespaceOperators, clusterManagerOperator)
	if err != nil {
		return err
	}
	if err := checkInstaller(running, clusterManagerOperator, "upgrade the hub with that"); err != nil {
		return err
	}
	return checkRights(ctx, cluster, objects)
}

// publish makes sure that the cluster says how it is reached.
func (i *initialization) publish(ctx context.Context, cluster *install.Cluster) error {
	info, err := cluster.Get(ctx, clusterInfo)
	if err != nil {
		return err
	}
	server := cluster.Server()
	if info == nil {
		i.note("Warning: the cluster has no ConfigMap %s/%s, which says how it is reached. It is created from the kubeconfig, with the address %s.",
			clusterInfo.Namespace, clusterInfo.Name, server)
		if err := createClusterInfo(ctx, cluster); err != nil {
			return err
		}
	} else if server, err = publishedServer(info); err != nil && !i.force {
		return err
	}
	i.warnOfHost(server)
	return nil
}

// warnOfHost tells of addresses that agents in other clusters may not reach.
func (i *initialization) warnOfHost(server string) {
	parsed, err := url.Parse(server)
	if err != nil {
		return
	}
	switch address := net.ParseIP(parsed.Hostname()); {
	case address == nil:
		i.note("Warning: the address of the hub, %s, has the host name %s. If clusters that join cannot resolve it, maybe you should set "+
			"HostAlias: spec.hubApiServerHostAlias of the Klusterlet.", server, parsed.Hostname())
	case address.IsLoopback():
		i.note("Warning: the address of the hub, %s, leads to the machine that uses it. Clusters elsewhere cannot join there.", server)
	}
}

// clusterInfo is the ConfigMap in which clusters publish how they are reached.
var clusterInfo = install.Reference{
	GroupVersionKind: install.KindConfigMap, Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo,
}

// clusterInfoReaders let everybody read that ConfigMap, as installers of Kubernetes do: who joins compares the hash of the certificate
// authority in it with the one of the join command, before sending a token.
var clusterInfoReaders = []install.Reference{
	{GroupVersionKind: install.KindRole, Namespace: clusterInfo.Namespace, Name: "open-cluster-management:cluster-info"},
	{GroupVersionKind: install.KindRoleBinding, Namespace: clusterInfo.Namespace, Name: "open-cluster-management:cluster-info"},
}

// annotationCreatedBy marks what init has created outside of the namespaces of the hub, for clean.
const annotationCreatedBy = "capstan.io/created-by"

func createClusterInfo(ctx context.Context, cluster *install.Cluster) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: cluster.Server(), CertificateAuthorityData: cluster.Hub().CA}
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	info := published(clusterInfo, map[string]any{
		"immutable": true,
		"data":      map[string]any{bootstrapapi.KubeConfigKey: string(kubeconfig)},
	})
	role := published(clusterInfoReaders[0], map[string]any{"rules": []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"configmaps"}, "resourceNames": []any{clusterInfo.Name}, "verbs": []any{"get"}}}})
	group := func(name string) any {
		return map[string]any{"apiGroup": install.KindRole.Group, "kind": "Group", "name": name}
	}
	binding := published(clusterInfoReaders[1], map[string]any{
		"roleRef":  map[string]any{"apiGroup": install.KindRole.Group, "kind": "Role", "name": clusterInfoReaders[0].Name},
		"subjects": []any{group("system:unauthenticated"), group("system:authenticated")},
	})
	return cluster.Apply(ctx, []*unstructured.Unstructured{info, role, binding}, func(install.Reference, install.Change) {})
}

// published is an object by which init publishes how the cluster is reached.
func published(name install.Reference, content map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(name.GroupVersionKind)
	object.SetNamespace(name.Namespace)
	object.SetName(name.Name)
	object.SetAnnotations(map[string]string{annotationCreatedBy: "capstan init"})
	return object
}

// publishedServer is the address in the ConfigMap cluster-info.
func publishedServer(info *unstructured.Unstructured) (string, error) {
	content, _, _ := unstructured.NestedString(info.Object, "data", bootstrapapi.KubeConfigKey)
	config, err := clientcmd.Load([]byte(content))
	if err != nil || strings.TrimSpace(content) == "" || len(config.Clusters) == 0 {
		return "", fmt.Errorf("ConfigMap %s/%s of the cluster holds no kubeconfig, so clusters that join cannot find the hub: "+
			"delete it, and this command creates it from your kubeconfig", clusterInfo.Namespace, clusterInfo.Name)
	}
	for _, cluster := range config.Clusters {
		return cluster.Server, nil
	}
	return "", nil
}

// What a ClusterManager says of a hub that works.
var hubWorks = []install.Wanted{
	{Type: "Applied", Status: metav1.ConditionTrue}, {Type: "Progressing", Status: metav1.ConditionFalse},
	{Type: "HubRegistrationDegraded", Status: metav1.ConditionFalse}, {Type: "HubPlacementDegraded", Status: metav1.ConditionFalse},
}

// awaitHub waits until the operator runs, and what it runs.
func (i *initialization) awaitHub(ctx context.Context, cluster *install.Cluster, objects []*unstructured.Unstructured) error {
	if err := i.awaitRollout(ctx, cluster, fleet.NamespaceOperators, clusterManagerOperator); err != nil {
		return err
	}
	for _, object := range objects {
		if object.GroupVersionKind() != install.KindClusterManager {
			continue
		}
		return i.awaitConditions(ctx, cluster, install.ReferenceTo(object), hubWorks, fleet.NamespaceHub, object.GetName())
	}
	return nil
}

// sayJoin prints what a cluster joins with.
func (i *initialization) sayJoin(ctx context.Context, cluster *install.Cluster) error {
	info, err := i.joinInfoOf(ctx, cluster.Hub(), i.useBootstrapToken)
	if err != nil {
		return fmt.Errorf("the hub is installed; what clusters join with is not to be had: %w", err)
	}
	info.wait = i.wait
	if err := i.writeJoinCommand(info); err != nil {
		return err
	}
	if i.format.Format() == output.JSON {
		content, err := json.Marshal(info)
		if err != nil {
			return err
		}
		i.say("%s", content)
		return nil
	}
	i.say("The multicluster hub control plane has been initialized successfully!\n\n"+
		"You can now register cluster(s) to the hub control plane. Log onto those cluster(s) and run the following command:\n\n"+
		"    %s\n\nReplace <cluster_name> with a cluster name of your choice. For example, cluster1.", info.commandLine())
	return nil
}

// writeJoinCommand writes the script of --output-join-command-file, if there is to be one.
func (i *initialization) writeJoinCommand(info joinInfo) error {
	if i.joinCommandFile == "" {
		return nil
	}
	script := "#!/bin/sh\nexec " + info.words() + " --cluster-name \"$1\"\n"
	const onlyOwner = 0o700 // there is a token in it
	err := os.WriteFile(i.joinCommandFile, []byte(script), onlyOwner)
	if err == nil {
		err = os.Chmod(i.joinCommandFile, onlyOwner) // of a file that was there
	}
	if err != nil {
		return fmt.Errorf("--output-join-command-file: %w", err)
	}
	i.note("The join command is in %s; its argument is the name of the cluster.", i.joinCommandFile)
	return nil
}

// hubDriverFlags say how clusters register with a hub.
type hubDriverFlags struct {
	drivers       []string
	csrIdentities []string
	others        map[string]*[]string // flags of drivers that this version does not have
	grpcServer    string
	grpcEndpoint  string
	hubClusterARN string
}

// driverCSR is the driver that this version has.
const driverCSR = "csr"

func (f *hubDriverFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringSliceVar(&f.drivers, "registration-drivers", []string{driverCSR}, "how clusters register: csr; this version has no awsirsa and grpc")
	flags.StringSliceVar(&f.csrIdentities, "auto-approved-csr-identities", nil,
		"users whose clusters are accepted without an administrator; needs --feature-gates ManagedClusterAutoApproval=true")
	f.others = map[string]*[]string{}
	for _, other := range []struct{ flag, usage string }{
		{"aws-resource-tags", "tags of roles for the driver awsirsa, which this version does not have"},
		{"auto-approved-arn-patterns", "patterns of users of the driver awsirsa, which this version does not have"},
		{"auto-approved-grpc-identities", "users of the driver grpc, which this version does not have"},
	} {
		f.others[other.flag] = flags.StringSlice(other.flag, nil, other.usage)
		complete(command, other.flag, cobra.NoFileCompletions)
	}
	flags.StringVar(&f.hubClusterARN, "hub-cluster-arn", "", "name of the hub for the driver awsirsa, which this version does not have")
	flags.StringVar(&f.grpcServer, "grpc-server", "", "host of the driver grpc, which this version does not have")
	flags.StringVar(&f.grpcEndpoint, "grpc-endpoint-type", "hostname", "kind of endpoint of the driver grpc, which this version does not have")
	for _, flag := range []string{"auto-approved-csr-identities", "hub-cluster-arn", "grpc-server", "grpc-endpoint-type"} {
		complete(command, flag, cobra.NoFileCompletions)
	}
	complete(command, "registration-drivers", cobra.FixedCompletions([]string{driverCSR}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *hubDriverFlags) check(gates *gateFlag) error {
	for _, driver := range f.drivers {
		if err := checkDriver("--registration-drivers", driver); err != nil {
			return err
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(f.others)) {
		if len(*f.others[flag]) > 0 {
			return otherDriver("--" + flag)
		}
	}
	switch {
	case f.hubClusterARN != "":
		return otherDriver("--hub-cluster-arn")
	case f.grpcServer != "":
		return otherDriver("--grpc-server")
	case len(f.csrIdentities) > 0 && !slices.Contains(f.drivers, driverCSR):
		return errors.New("--auto-approved-csr-identities: useless without csr in --registration-drivers")
	case len(f.csrIdentities) > 0 && !gates.enabled("ManagedClusterAutoApproval"):
		return errors.New("--auto-approved-csr-identities: useless without --feature-gates ManagedClusterAutoApproval=true")
	}
	return nil
}

// checkDriver refuses drivers that this version does not have.
func checkDriver(flag, driver string) error {
	switch driver {
	case driverCSR:
		return nil
	case "awsirsa", "grpc":
		return fmt.Errorf("%s: this version registers clusters by certificate requests (csr) alone, and does not have the driver %s", flag, driver)
	}
	return fmt.Errorf("%s: %q is no driver; this version has csr", flag, driver)
}

func otherDriver(flag string) error {
	return fmt.Errorf("%s: for a driver that this version does not have: clusters register by certificate requests (csr) alone", flag)
}

// values are the registrationDrivers of a ClusterManager.
func (f *hubDriverFlags) values() []any {
	csr := map[string]any{"authType": driverCSR}
	if len(f.csrIdentities) > 0 {
		csr["csr"] = map[string]any{"autoApprovedIdentities": f.csrIdentities}
	}
	return []any{csr}
}

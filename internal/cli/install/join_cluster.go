package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// The values of --mode.
const (
	modeDefault = "default"
	modeHosted  = "hosted"
)

// clusterJoin is "capstan join" for an agent that runs in a cluster.
type clusterJoin struct {
	*joining
	flags clusterJoinFlags

	installFlags
	mode            string
	singleton       bool
	internal        bool
	internalManaged bool
	force           bool
	certificateLife int32
	annotations     []string
	driver          agentDriverFlags
	capi            capiFlags

	operator installation.Running
	before   hubBefore
}

// clusterJoinFlags are the names of the flags that are for agents in clusters alone.
type clusterJoinFlags []string

// changed are those of the flags that were set.
func (f clusterJoinFlags) changed(command *cobra.Command) []string {
	return slices.DeleteFunc(slices.Clone(f), func(name string) bool { return !command.Flags().Changed(name) })
}

func (c *clusterJoin) add(command *cobra.Command) {
	flags := command.Flags()
	before := flagNames(command)
	c.installFlags.add(command, "klusterlet-values-file", agentFeatureGates)
	flags.StringVarP(&c.mode, "mode", "m", modeDefault, "where the agent runs: default is in the cluster that it is for, hosted in another")
	flags.BoolVar(&c.singleton, "singleton", false, "run the agent in one pod instead of two")
	flags.BoolVar(&c.internal, "force-internal-endpoint-lookup", false,
		"have the agent reach the hub at the address that the hub publishes, not at --hub-apiserver: for clusters in the hub's own network, such as kind's")
	flags.BoolVar(&c.internalManaged, "force-internal-endpoint-lookup-managed", false,
		"with --mode hosted, have the agent reach the managed cluster at the address that this publishes, not at that of its kubeconfig")
	flags.BoolVar(&c.force, "force", false, "leave out the checks of the cluster, and take over what other tools have installed")
	flags.Int32Var(&c.certificateLife, "client-cert-expiration-seconds", 31536000, //nolint:mnd // a year
		"validity of the agent's certificates, in seconds; at least 600, or 0 for what the hub decides")
	flags.StringArrayVar(&c.annotations, "klusterlet-annotation", nil,
		"annotation of the ManagedCluster as KEY=VALUE; the key gets the prefix "+fleet.AnnotationAgentPrefix+" if it has none; several times for several")
	c.driver.add(command)
	c.capi.add(command)
	options.Complete(command, "mode", cobra.FixedCompletions([]string{modeDefault, modeHosted}, cobra.ShellCompDirectiveNoFileComp))
	options.Complete(command, "klusterlet-annotation", cobra.NoFileCompletions)
	for _, name := range flagNames(command) {
		if !slices.Contains(before, name) {
			c.flags = append(c.flags, name)
		}
	}
}

// check finds what is missing or wrong for an agent in a cluster, before any request.
func (c *clusterJoin) check() error {
	c.mode = strings.ToLower(c.mode)
	switch {
	case c.detach:
		return errors.New("--detach: useless without --local: an agent in a cluster always runs in the background")
	case c.mode != modeDefault && c.mode != modeHosted:
		return fmt.Errorf("--mode: %q is none of %s, %s", c.mode, modeDefault, modeHosted)
	case c.mode == modeHosted && c.managedKubeconfig == "":
		return errors.New("--managed-cluster-kubeconfig is missing: with --mode hosted it leads to the cluster that is to join, and --kubeconfig and " +
			"--context to the one that the agent runs in")
	case c.mode == modeDefault && c.managedKubeconfig != "":
		return errors.New("--managed-cluster-kubeconfig: of no use with --mode default, where the agent is installed in the cluster of --kubeconfig and " +
			"--context.\n" +
			"--mode hosted runs the agent in one cluster for another; --local runs it as a process of this machine")
	case c.mode == modeDefault && c.internalManaged:
		return errors.New("--force-internal-endpoint-lookup-managed: useless without --mode hosted")
	case c.driver.registration == driverGRPC && c.internal:
		return errors.New("--force-internal-endpoint-lookup: of no use with --registration-auth grpc, where the agent reaches the hub at --grpc-server")
	case c.certificateLife != 0 && c.certificateLife < fleet.MinCredentialSeconds:
		return fmt.Errorf("--client-cert-expiration-seconds: %d: must be at least %d, or 0", c.certificateLife,
			fleet.MinCredentialSeconds)
	}
	if _, err := c.clusterAnnotations(); err != nil {
		return err
	}
	if err := c.capi.check(c.mode); err != nil {
		return err
	}
	if c.driver.registration == driverAWS && c.driver.aws.managedARN == "" && c.mode == modeDefault {
		c.driver.aws.managedARN = currentCluster(c.Global)
	}
	if err := c.driver.check(); err != nil {
		return err
	}
	return c.installFlags.check()
}

// join installs the agent in a cluster.
func (c *clusterJoin) join(ctx context.Context) error {
	trust, hub, err := c.findHub(ctx)
	if err != nil {
		return err
	}
	cluster, err := c.clusterToJoin(ctx)
	if err != nil {
		return err
	}
	if _, err := checkKubernetes(ctx, cluster, oldestForAgents); err != nil {
		return err
	}
	objects, err := c.render(ctx, cluster, hub, trust)
	if err != nil {
		return err
	}
	if c.DryRun {
		return printObjects(c.Global, objects)
	}
	if !c.force {
		if err := c.preflight(ctx, cluster, objects); err != nil {
			return err
		}
	}
	custom := ofKind(objects, installation.KindKlusterlet)
	var w *waiting
	if c.wait {
		c.before = readBefore(ctx, hub, c.cluster)
		if w, err = upgradableAgent.waiting(ctx, c.Global, cluster, objects, custom); err != nil {
			return err
		}
	}
	if err := applyAll(ctx, c.Global, cluster, objects, c.outputFile); err != nil {
		return err
	}
	if c.force {
		if err := takeOver(ctx, c.Global, cluster, objects); err != nil {
			return err
		}
	}
	if c.wait {
		if err := c.awaitAgent(ctx, w, hub, trust, custom); err != nil {
			return err
		}
	}
	c.printAcceptCommand()
	return c.printAgent(ctx, cluster, objects)
}

// printAgent prints who the agent is on the hub, for an administrator who sees requests of several. Once an agent has joined as the
// cluster, the name of the agent is not enough: anyone with a bootstrap credential can ask in it. Which request is its own, its log
// tells: on the hub, others look the same.
func (c *clusterJoin) printAgent(ctx context.Context, cluster *Cluster, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GroupVersionKind() != installation.KindKlusterlet {
			continue
		}
		klusterlet, err := cluster.Get(ctx, installation.ReferenceTo(object))
		if err != nil || klusterlet == nil {
			return err
		}
		c.Say("Where several agents ask to be %s, this one is\n\n    --requesters %s\n\n"+
			"Where one was it before, the name of the request of this one takes that place: its log has it.",
			c.cluster, fleet.ClusterUser(c.cluster, string(klusterlet.GetUID())))
	}
	return nil
}

// render returns what is to be applied.
func (c *clusterJoin) render(ctx context.Context, cluster *Cluster, hub *hubapi.Hub,
	trust hubapi.Trust) ([]*unstructured.Unstructured, error) {
	var err error
	if c.operator, err = cluster.Deployed(ctx, fleet.NamespaceOperators, klusterletOperator); err != nil {
		return nil, err
	}
	values, err := c.values(ctx, cluster, hub, trust)
	if err != nil {
		return nil, err
	}
	objects, err := installer.Objects(klusterletOperator, values)
	if err != nil {
		return nil, err
	}
	c.noteKeptOperator(values)
	if c.mode != modeHosted || c.keepsOperator() {
		return objects, nil
	}
	operator, err := renderOperator(values)
	return merged(objects, operator), err
}

// keepsOperator reports whether the cluster has an operator that runs. "capstan upgrade klusterlet" changes it.
func (c *clusterJoin) keepsOperator() bool { return c.operator.Available }

// values are those of the chart klusterlet.
func (c *clusterJoin) values(ctx context.Context, cluster *Cluster, hub *hubapi.Hub, trust hubapi.Trust) (map[string]any, error) {
	images, err := c.images.values()
	if err != nil {
		return nil, err
	}
	bootstrap, err := c.bootstrapKubeconfig(ctx, hub, trust)
	if err != nil {
		return nil, err
	}
	grpcConfig, err := c.grpcConfig(ctx, hub)
	if err != nil {
		return nil, err
	}
	klusterlet, err := c.klusterletValues()
	if err != nil {
		return nil, err
	}
	values := map[string]any{
		"createNamespace": c.createNamespace, "images": images, "enableSyncLabels": c.syncLabels,
		"noOperator": c.keepsOperator(), "bootstrapHubKubeConfig": bootstrap, "grpcConfig": grpcConfig, "klusterlet": klusterlet,
	}
	managed := cluster.Hub()
	if c.mode == modeHosted {
		var kubeconfig string
		if managed, kubeconfig, err = c.managedCluster(ctx); err != nil {
			return nil, err
		}
		values["externalManagedKubeConfig"] = kubeconfig
		if err := c.nameHosted(ctx, cluster, klusterlet, hubapi.ServerIn([]byte(bootstrap))); err != nil {
			return nil, err
		}
	}
	if urls := externalURLs(ctx, managed); len(urls) > 0 {
		klusterlet["externalServerURLs"] = urls
	}
	return values, c.override(values)
}

// klusterletValues are the Klusterlet.
func (c *clusterJoin) klusterletValues() (map[string]any, error) {
	annotations, err := c.clusterAnnotations()
	if err != nil {
		return nil, err
	}
	registration := map[string]any{
		"featureGates":                      c.gates.of(registrationPart),
		"registrationDriver":                c.driver.values(),
		"addOnKubeClientRegistrationDriver": c.driver.addOnValues(),
	}
	if c.certificateLife != 0 {
		registration["clientCertExpirationSeconds"] = c.certificateLife
	}
	if len(annotations) > 0 {
		registration["clusterAnnotations"] = texts(annotations)
	}
	return map[string]any{
		"name": klusterletOperator, "namespace": fleet.NamespaceAgent, "clusterName": c.cluster, "mode": string(c.installMode()),
		"resourceRequirement":    c.resources(),
		string(registrationPart): registration,
		string(workPart):         map[string]any{"featureGates": c.gates.of(workPart)},
	}, nil
}

func (c *clusterJoin) installMode() operatorv1.InstallMode {
	switch {
	case c.mode == modeHosted && c.singleton:
		return operatorv1.InstallModeSingletonHosted
	case c.mode == modeHosted:
		return operatorv1.InstallModeHosted
	case c.singleton:
		return operatorv1.InstallModeSingleton
	}
	return operatorv1.InstallModeDefault
}

// clusterAnnotations are those of the ManagedCluster.
func (c *clusterJoin) clusterAnnotations() (map[string]string, error) {
	annotations := map[string]string{}
	for _, pair := range c.annotations {
		key, value, given := strings.Cut(pair, "=")
		if !given || key == "" {
			return nil, fmt.Errorf("--klusterlet-annotation: %q is not KEY=VALUE", pair)
		}
		if !strings.HasPrefix(key, fleet.AnnotationAgentPrefix) {
			key = fleet.AnnotationAgentPrefix + key
		}
		annotations[key] = value
	}
	return annotations, nil
}

// bootstrapKubeconfig is what the agent joins with.
func (c *clusterJoin) bootstrapKubeconfig(ctx context.Context, hub *hubapi.Hub, trust hubapi.Trust) (string, error) {
	invitation := c.invitation
	if c.internal {
		published, err := hub.Published(ctx)
		if err != nil {
			return "", err
		}
		invitation.Server = published.Server
		if !strings.HasPrefix(invitation.Server, "https://") {
			return "", fmt.Errorf("--force-internal-endpoint-lookup: the hub publishes the address %q, without TLS", invitation.Server)
		}
	}
	content, err := clientcmd.Write(*invitation.Kubeconfig(trust))
	return string(content), err
}

// externalURLs are the addresses that the managed cluster publishes.
func externalURLs(ctx context.Context, managed *hubapi.Hub) []any {
	published, err := managed.Published(ctx)
	if err != nil || !published.InClusterInfo || !strings.HasPrefix(published.Server, "https://") {
		return nil
	}
	return []any{map[string]any{"url": published.Server}}
}

package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/manifests"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
)

const explainPlacementLong = `Show why a placement selects the clusters it does: how many are left after each step, the scores of the candidates, and the
first reason why another cluster is not selected.

With --what-if, the placement is read from a file instead, and nothing is saved. One that has the name of a placement on the
hub goes on from the decisions of that.

The placement controllers of a hub in an existing cluster answer at a port of their own. --debug-server leads there, for instance
through "kubectl port-forward"; it gets the credentials of the kubeconfig.`

// explanation is one run of "capstan explain placement".
type explanation struct {
	*options.Global
	namespace string
	cluster   string
	whatIf    string
	server    debugServer
	format    *output.Choice
}

// NewExplainPlacementCommand is "capstan explain placement".
func NewExplainPlacementCommand(global *options.Global) *cobra.Command {
	f := &explanation{Global: global}
	command := &cobra.Command{
		Use:     "placement NAME",
		Aliases: []string{"placements"},
		Short:   "Show why a placement selects the clusters it does",
		Long:    explainPlacementLong,
		Example: "  capstan explain placement web --namespace team-a\n" +
			"  capstan explain placement web --namespace team-a --cluster cluster1\n" +
			"  capstan explain placement --what-if placement.yaml\n" +
			"  capstan explain placement web --debug-server https://localhost:9443 --debug-server-ca ca.crt \\\n" +
			"    --debug-server-name cluster-manager-placement.open-cluster-management-hub.svc",
		Args: func(command *cobra.Command, args []string) error {
			if f.whatIf != "" && len(args) == 0 {
				return nil
			}
			return options.ExactName(command, args)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the hub (default \""+metav1.NamespaceDefault+"\", or that of the file)")
	flags.StringVarP(&f.cluster, "cluster", "c", "", "say why this cluster is selected or not")
	flags.StringVar(&f.whatIf, "what-if", "", "file with a Placement that is not saved; - is standard input")
	flags.StringVar(&f.server.URL, "debug-server", "",
		"URL of the placement controllers of a hub in an existing cluster, such as https://localhost:9443 (default: the hub)")
	flags.StringVar(&f.server.CAFile, "debug-server-ca", "",
		"PEM certificates to verify the server of --debug-server with (default: those of the system)")
	flags.StringVar(&f.server.Name, "debug-server-name", "",
		"host name that the certificate of the server of --debug-server is for (default: that of the URL)")
	options.Complete(command, "debug-server-name", cobra.NoFileCompletions)
	options.Complete(command, "namespace", f.CompleteNamespaces)
	options.Complete(command, "cluster", f.CompleteClusters)
	command.ValidArgsFunction = completePlacement(global, &f.namespace)
	f.format = options.AddOutputFlag(command, output.Text, output.YAML, output.JSON)
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx, cancel := f.Limited(command.Context())
		defer cancel()
		r, err := f.report(ctx, args)
		if err != nil {
			return err
		}
		if err := f.checkExplains(r); err != nil {
			return err
		}
		if f.cluster != "" {
			return f.printReason(r)
		}
		return f.printReport(r)
	}
	return command
}

// report reads the report of the hub on the placement there, or on the one in the file.
func (f *explanation) report(ctx context.Context, args []string) (*report.Report, error) {
	if f.namespace != "" {
		if err := options.CheckNamespaceName("--namespace", f.namespace); err != nil {
			return nil, err
		}
	}
	if f.cluster != "" {
		if err := options.CheckClusterName("--cluster", f.cluster); err != nil {
			return nil, err
		}
	}
	if f.server.URL == "" && f.server.CAFile+f.server.Name != "" {
		return nil, errors.New("--debug-server-ca, --debug-server-name: need the URL of the server, too: --debug-server https://localhost:9443")
	}
	if f.whatIf == "" {
		hub, err := f.explainer()
		if err != nil {
			return nil, err
		}
		return explainPlacement(ctx, hub, defaultNamespace(f.namespace), args[0])
	}
	placement, err := f.readPlacement(args)
	if err != nil {
		return nil, err
	}
	hub, err := f.explainer()
	if err != nil {
		return nil, err
	}
	return whatIf(ctx, hub, placement)
}

// checkExplains fails if a report does not have what is to be printed of it.
func (f *explanation) checkExplains(r *report.Report) error {
	if r.Funnel != nil && r.Placement != nil || f.cluster == "" && f.format.Format() != output.Text {
		return nil
	}
	return errors.New("the placement controllers of this hub are not of Capstan: they say which clusters are left after each filter, and the " +
		"scores of those, but not why: -o yaml without --cluster shows what they say")
}

// explainer is the client of the hub, or of its debug server, for explaining placements.
func (f *explanation) explainer() (*hubapi.Hub, error) {
	if f.server.URL != "" {
		return f.server.connect(f.Target())
	}
	return f.Hub()
}

func defaultNamespace(namespace string) string {
	if namespace == "" {
		return metav1.NamespaceDefault
	}
	return namespace
}

// readPlacement reads the file of --what-if. The flags complete it, and may not contradict it. The result has what is in the
// file and no zeros for what is not: the hub has defaults for that.
func (f *explanation) readPlacement(args []string) (*unstructured.Unstructured, error) {
	documents, err := manifests.Read(f.whatIf, f.In)
	if err != nil {
		return nil, fmt.Errorf("--what-if: %w", err)
	}
	if len(documents) != 1 {
		return nil, fmt.Errorf("--what-if: %s has %d objects, want one Placement", f.whatIf, len(documents))
	}
	where := documents[0].Where
	placement := &clusterv1beta1.Placement{}
	if err := yaml.UnmarshalStrict(documents[0].Raw.Raw, placement); err != nil {
		return nil, fmt.Errorf("--what-if: %s is no Placement: %w", where, err)
	}
	if got, want := placement.GroupVersionKind(), clusterv1beta1.GroupVersion.WithKind("Placement"); got != want {
		return nil, fmt.Errorf("--what-if: %s is a %s %s, want a %s %s", where, got.GroupVersion(), got.Kind, want.GroupVersion(), want.Kind)
	}
	if f.namespace != "" && placement.Namespace != "" && placement.Namespace != f.namespace {
		return nil, fmt.Errorf("--what-if: the placement in %s is in namespace %s, not in %s: leave out --namespace, or change one of them",
			where, placement.Namespace, f.namespace)
	}
	written := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(documents[0].Raw.Raw, &written.Object); err != nil {
		return nil, fmt.Errorf("--what-if: %s: %w", where, err)
	}
	if placement.Namespace == "" {
		written.SetNamespace(defaultNamespace(f.namespace))
	}
	if len(args) == 1 {
		written.SetName(args[0])
	}
	return written, nil
}

// printReason prints why one cluster is selected or not.
func (f *explanation) printReason(r *report.Report) error {
	at := slices.IndexFunc(r.Clusters, func(c report.ClusterReason) bool { return c.ClusterName == f.cluster })
	if at < 0 {
		return fmt.Errorf("cluster %q does not exist, or is in none of the cluster sets of this placement and you may not list all clusters: "+
			"\"capstan get clusters\" lists the clusters", f.cluster)
	}
	reason := r.Clusters[at]
	if f.format.Format() != output.Text {
		return f.Print(f.format.Format(), output.View{Object: reason})
	}
	f.Say("%s", reasonOf(r, reason))
	if scores := output.ScoreGrid(r, []report.ClusterReason{reason}); len(scores.Rows) > 0 {
		f.Say("")
		return output.StyleOf(f.Out).WriteGrid(f.Out, scores)
	}
	return nil
}

// reasonOf is why one cluster is selected or not, in a sentence or two.
func reasonOf(r *report.Report, reason report.ClusterReason) string {
	not := map[bool]string{true: "", false: "not "}[reason.Selected]
	switch {
	case r.Error != "":
		return fmt.Sprintf("%s\nCluster %s is %samong those it keeps.", summaryOf(r), reason.ClusterName, not)
	case r.Disabled:
		return fmt.Sprintf("The annotation %s of placement %s keeps its decisions as they are: the hub makes none.\n"+
			"Without the annotation, cluster %s would %sbe selected: %s", fleet.AnnotationSchedulingDisable, title(r.Placement), reason.ClusterName,
			not, reason.Reason)
	}
	return fmt.Sprintf("Cluster %s is %sselected by placement %s: %s", reason.ClusterName, not, title(r.Placement), reason.Reason)
}

func (f *explanation) printReport(r *report.Report) error {
	if f.format.Format() != output.Text {
		return f.Print(f.format.Format(), output.View{Object: r})
	}
	f.Say("%s", summaryOf(r))
	if r.Error != "" {
		return nil
	}
	if r.Disabled {
		f.Say("Its annotation %s keeps the decisions as they are, whatever is below.", fleet.AnnotationSchedulingDisable)
	}
	grids, more := output.Explanation(r)
	for _, grid := range grids {
		f.Say("")
		if err := output.StyleOf(f.Out).WriteGrid(f.Out, grid); err != nil {
			return err
		}
	}
	if more > 0 {
		f.Say("\n%s more not selected: --cluster NAME says why one of them is not, -o json why each of them is not.", clusterCount(more))
	}
	return nil
}

// summaryOf is a report in a sentence.
func summaryOf(r *report.Report) string {
	if r.Error != "" {
		return fmt.Sprintf("Placement %s makes no sense, and keeps the %s it has: %s", title(r.Placement), clusterCount(r.Funnel.Selected),
			r.Error)
	}
	sentence := fmt.Sprintf("Placement %s selects %s", title(r.Placement), clusterCount(r.Funnel.Selected))
	if satisfied := meta.FindStatusCondition(r.Conditions, fleet.ConditionPlacementSatisfied); satisfied != nil && satisfied.Message != "" {
		sentence += ": " + strings.ToLower(satisfied.Message[:1]) + satisfied.Message[1:]
	}
	return sentence
}

func clusterCount(n int) string {
	if n == 1 {
		return "1 cluster"
	}
	return fmt.Sprintf("%d clusters", n)
}

func title(p *clusterv1beta1.Placement) string {
	if p.Name == "" {
		return "in namespace " + p.Namespace
	}
	return p.Namespace + "/" + p.Name
}

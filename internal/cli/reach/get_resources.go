package reach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/manyclusters"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

const getLong = `Show clusters, cluster sets, placements, works, add-ons, what the hub runs, or a token to join with.

Any other RESOURCE is read from clusters, through the hub: those of --clusters, those that --placement has selected, the members of
--clusterset, or --all-clusters. RESOURCE is what kubectl takes, such as pods, deploy or certificates.cert-manager.io, and NAME one
object. The objects of all clusters come as one table, or as one List in YAML and JSON, where the annotation
capstan.io/cluster-name names the cluster of each.

Clusters are printed as they answer; those that do so at once are in the order in which you name them. What can be read is printed, also
if some clusters cannot. These are listed at the end, with the reasons, and the exit code is 1. A
cluster has 10 seconds for each answer, or those of --timeout; answers that are larger than 256 MiB are not read. With --watch, a
cluster that is away is watched again once it is back. The clusters need the add-on cluster-proxy.`

// resourceList is one run of "capstan get RESOURCE": what to read, and of which clusters.
type resourceList struct {
	*options.Global
	options.ClusterChoice

	namespace     string
	allNamespaces bool
	labelSelector string
	fieldSelector string
	watch         bool
	format        *output.Choice
}

// NewGetCommand is "capstan get", which reads of clusters what is none of its subcommands.
func NewGetCommand(global *options.Global, subcommands ...*cobra.Command) *cobra.Command {
	f := &resourceList{Global: global}
	command := options.Parent("get", "Show clusters, cluster sets, placements, works, add-ons, what the hub runs, a token to join with, or any resource of clusters",
		subcommands...)
	f.ClusterChoice.Add(global, command)
	flags := command.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the clusters")
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "read all namespaces of the clusters")
	flags.StringVarP(&f.labelSelector, "selector", "l", "", "only objects with these labels, such as app=web,tier!=cache")
	flags.StringVar(&f.fieldSelector, "field-selector", "", "only objects with these fields, such as status.phase=Running")
	flags.BoolVarP(&f.watch, "watch", "w", false, "go on with the rows of what changes, until you end it")
	f.format = options.AddOutputFlag(command, output.Table, output.Wide, output.YAML, output.JSON, output.Name)
	command.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	for _, flag := range []string{"namespace", "selector", "field-selector"} {
		options.Complete(command, flag, cobra.NoFileCompletions)
	}
	command.Use = "get [RESOURCE [NAME]]"
	command.Long = getLong
	command.Example = "  capstan get pods --clusters cluster1,cluster2 -n web\n" +
		"  capstan get deployments --clusterset prod -A -l app=web\n" +
		"  capstan get nodes --placement default/web -o wide\n" +
		"  capstan get pods --clusterset prod -A --watch\n" +
		"  capstan get nodes --all-clusters -o yaml\n" +
		"  capstan get clusters"
	command.Args = f.checkArgs
	command.RunE = func(command *cobra.Command, args []string) error {
		if len(args) == 0 && !f.Chosen() {
			return command.Help()
		}
		query, err := f.query(args)
		if err != nil {
			return err
		}
		query.Timeout, query.Clock = clusterLimit(global, command), f.Clock
		if f.watch && f.format.Format() != output.Table && f.format.Format() != output.Wide {
			return errors.New("--watch: shows rows of tables: leave out --output, or use wide")
		}
		hub, err := f.Hub()
		if err != nil {
			return err
		}
		clusters, err := f.Choose(command.Context(), hub)
		if err != nil {
			return err
		}
		return f.show(command.Context(), hub, clusters, query)
	}
	return command
}

// checkArgs takes a word for a misspelt subcommand, unless clusters are chosen.
func (f *resourceList) checkArgs(command *cobra.Command, args []string) error {
	if !f.Chosen() {
		if err := options.KnownCommand(command, args); err != nil {
			return fmt.Errorf("%w\nTo read it from clusters, say from which, with --clusters, --placement, --clusterset or --all-clusters:\n  capstan get %s --clusters CLUSTER,...",
				err, strings.Join(args, " "))
		}
		return nil
	}
	switch {
	case len(args) == 0:
		return errors.New("what of the clusters? Name a resource, such as pods: capstan get pods --clusters CLUSTER,...")
	case len(args) > 2: //nolint:mnd // a resource and a name
		return fmt.Errorf("%q: one resource and one name at most; --selector reads several objects", args[2:])
	case strings.Contains(args[0], ","):
		return fmt.Errorf("RESOURCE: %q: one resource at a time", args[0])
	}
	return nil
}

// query is what the arguments describe.
func (f *resourceList) query(args []string) (manyclusters.Query, error) {
	q := manyclusters.Query{Resource: args[0], Namespace: f.namespace, LabelSelector: f.labelSelector, FieldSelector: f.fieldSelector}
	if resource, name, found := strings.Cut(args[0], "/"); found && len(args) == 1 { // as in pod/web-0
		q.Resource, args = resource, []string{resource, name}
	}
	if len(args) > 1 {
		q.Name = args[1]
	}
	if f.allNamespaces {
		q.Namespace = ""
	} else if err := options.CheckNamespaceName("--namespace", f.namespace); err != nil {
		return q, err
	}
	if _, err := labels.Parse(f.labelSelector); err != nil {
		return q, fmt.Errorf("--selector: %w", err)
	}
	if _, err := fields.ParseSelector(f.fieldSelector); err != nil {
		return q, fmt.Errorf("--field-selector: %w", err)
	}
	switch {
	case strings.ContainsAny(q.Resource+q.Name, "/%") || q.Name == "." || q.Name == "..":
		return q, fmt.Errorf("NAME: %q: a name is no path, and has no slash or percent sign", q.Name)
	case q.Name != "" && f.allNamespaces:
		return q, errors.New("--all-namespaces: an object with a name is in one namespace: name it with --namespace, or use --field-selector metadata.name=NAME")
	case q.Name != "" && (f.labelSelector != "" || f.fieldSelector != ""):
		return q, errors.New("--selector, --field-selector: choose among objects; leave them out, or NAME")
	}
	return q, nil
}

// show reads of all clusters, prints what there is, and reports which of them failed.
func (f *resourceList) show(ctx context.Context, hub *hubapi.Hub, names []string, q manyclusters.Query) error {
	clusters := make([]*clusterapi.Cluster, len(names))
	for i, name := range names {
		cluster, err := clusterapi.Of(ctx, hub, name)
		if err != nil {
			return err
		}
		clusters[i] = cluster
	}
	var printer resourcePrinter
	switch format := f.format.Format(); format {
	case output.JSON, output.YAML:
		q.Form, printer = manyclusters.Objects, &listPrinter{out: f.Out, yaml: format == output.YAML}
	case output.Name:
		q.Form, printer = manyclusters.Names, &namePrinter{out: f.Out}
	default:
		printer = &tablePrinter{table: output.NewMerged(f.Out), wide: format == output.Wide}
	}
	last := map[string]manyclusters.Page{} // by cluster
	namespaced := false
	failed, err := manyclusters.Read(ctx, clusters, q, func(pages []manyclusters.Page) error {
		for i := range pages {
			last[pages[i].Cluster] = pages[i].WithoutContent()
			namespaced = namespaced || pages[i].Resource.Namespaced
		}
		return printer.print(pages)
	})
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err == nil {
		err = printer.end()
	}
	if err != nil {
		return err
	}
	if printer.empty() && len(failed) < len(names) {
		f.Note("No %s%s.", q.Resource, whereSearched(q, namespaced))
	}
	err = failureError(failed, len(names))
	if !f.watch || len(failed) == len(names) && allNotServed(failed) {
		return err
	}
	if err != nil {
		f.Note("%s", err)
	}
	for i := range failed {
		delete(last, failed[i].Cluster) // a page of it is not all
	}
	return f.watchAll(ctx, clusters, last, q, printer)
}

// allNotServed reports whether clusters have answered that they serve no such resource: then the word is hardly right, and a watch would
// wait for ever where an API group never answers.
func allNotServed(failed []manyclusters.Failure) bool {
	return !slices.ContainsFunc(failed, func(f manyclusters.Failure) bool { return !f.NotServed })
}

var errInterrupted = errors.New("interrupted")

// watchAll prints what changes, until it is interrupted, which is how it is meant to end.
func (f *resourceList) watchAll(ctx context.Context, clusters []*clusterapi.Cluster, last map[string]manyclusters.Page,
	q manyclusters.Query, printer resourcePrinter) error {
	err := manyclusters.Watch(ctx, clusters, last, q, manyclusters.WatchHandler{
		Write: func(page manyclusters.Page) error { return printer.print([]manyclusters.Page{page}) },
		Away: func(away manyclusters.Failure) {
			f.Note("%s: not watched for now, which is tried again: %s", away.Cluster, away.Message)
		},
		Back: func(cluster string) { f.Note("%s: watched again", cluster) },
		Relisted: func(cluster string) {
			f.Note("%s: what has changed in between is not known any more: all its rows follow", cluster)
		},
		Failed: func(failed manyclusters.Failure) {
			f.Note("%s: no longer watched: %s", failed.Cluster, failed.Problem)
		},
	})
	switch {
	case ctx.Err() != nil:
		return options.ExitError{Code: options.InterruptedCode}
	case err != nil:
		return err
	}
	return errors.New("no cluster is watched any more")
}

// whereSearched says where nothing was found.
func whereSearched(q manyclusters.Query, namespaced bool) string {
	where := ""
	if q.Namespace != "" && namespaced {
		where = fmt.Sprintf(" in namespace %q; --namespace or --all-namespaces chooses others", q.Namespace)
	}
	if q.LabelSelector != "" || q.FieldSelector != "" {
		where = " with " + strings.Trim(q.LabelSelector+","+q.FieldSelector, ",") + where
	}
	return where
}

// failureError says of each cluster that did not answer why, and of those with the same reason once.
func failureError(failed []manyclusters.Failure, all int) error {
	if len(failed) == 0 {
		return nil
	}
	var reasons, next []string
	clusters := map[string][]string{}
	for i := range failed {
		f := &failed[i]
		if clusters[f.Message] == nil {
			reasons = append(reasons, f.Message)
		}
		clusters[f.Message] = append(clusters[f.Message], f.Cluster)
		if f.Next != "" && !slices.Contains(next, f.Next) {
			next = append(next, f.Next)
		}
	}
	lines := []string{fmt.Sprintf("%d of %d clusters could not be read:", len(failed), all)}
	for _, reason := range reasons {
		lines = append(lines, fmt.Sprintf("  %s: %s", strings.Join(clusters[reason], ", "), reason))
	}
	const hints = 3
	return errors.New(strings.Join(append(lines, next[:min(len(next), hints)]...), "\n"))
}

// resourcePrinter prints pages as they come.
type resourcePrinter interface {
	print(pages []manyclusters.Page) error
	end() error
	empty() bool
}

// tablePrinter has a column for the cluster, and those of the servers.
type tablePrinter struct {
	table   *output.Merged
	wide    bool
	hasRows bool
}

func (p *tablePrinter) print(pages []manyclusters.Page) error {
	blocks := make([]output.Block, len(pages))
	for i := range pages {
		blocks[i] = p.block(&pages[i])
		p.hasRows = p.hasRows || len(pages[i].Rows) > 0
	}
	return p.table.Write(blocks)
}

func (p *tablePrinter) block(page *manyclusters.Page) output.Block {
	block := output.Block{Columns: []string{"Cluster"}}
	var shown []int
	for i, column := range page.Columns {
		if p.wide || !column.Wide {
			shown = append(shown, i)
			block.Columns = append(block.Columns, column.Name)
		}
	}
	for _, row := range page.Rows {
		cells := []string{page.Cluster}
		for _, i := range shown {
			if i < len(row) {
				cells = append(cells, row[i])
			}
		}
		block.Rows = append(block.Rows, cells)
	}
	return block
}

func (p *tablePrinter) end() error  { return nil }
func (p *tablePrinter) empty() bool { return !p.hasRows }

// namePrinter prints the cluster and the name of each object as kubectl takes it.
type namePrinter struct {
	out      io.Writer
	hasNames bool
}

func (p *namePrinter) print(pages []manyclusters.Page) error {
	for i := range pages {
		for _, name := range pages[i].Names {
			p.hasNames = true
			if _, err := fmt.Fprintf(p.out, "%s %s/%s\n", pages[i].Cluster, text.OneLine(pages[i].Resource.String()), text.OneLine(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *namePrinter) end() error  { return nil }
func (p *namePrinter) empty() bool { return !p.hasNames }

// listPrinter prints one List, object by object, so that it holds none of them.
type listPrinter struct {
	out   io.Writer
	yaml  bool
	count int
}

func (p *listPrinter) print(pages []manyclusters.Page) error {
	for i := range pages {
		for _, object := range pages[i].Objects {
			if err := p.item(object); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *listPrinter) item(object map[string]any) error {
	var content []byte
	var err error
	prefix, separator := "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"List\",\n  \"items\": [\n    ", ",\n    "
	if p.yaml {
		prefix, separator = "apiVersion: v1\nkind: List\nitems:\n- ", "- "
		if content, err = yaml.Marshal(object); err == nil {
			content = []byte(strings.ReplaceAll(strings.TrimSuffix(string(content), "\n"), "\n", "\n  ") + "\n")
		}
	} else {
		content, err = json.MarshalIndent(object, "    ", "  ")
	}
	if err != nil {
		return err
	}
	if p.count > 0 {
		prefix = separator
	}
	p.count++
	_, err = fmt.Fprintf(p.out, "%s%s", prefix, content)
	return err
}

func (p *listPrinter) end() error {
	suffix := "\n  ]\n}\n"
	switch {
	case p.yaml && p.count > 0:
		return nil
	case p.yaml:
		suffix = "apiVersion: v1\nkind: List\nitems: []\n"
	case p.count == 0:
		suffix = "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"List\",\n  \"items\": []\n}\n"
	}
	_, err := io.WriteString(p.out, suffix)
	return err
}

func (p *listPrinter) empty() bool { return p.count == 0 }

// Package chart makes the objects of an add-on from a Helm chart, such as one that the program embeds. It renders charts with Helm's
// library; no cluster gets a Helm release.
//
// Charts have the values that they are rendered with, and those that every add-on has:
//
//	clusterName                 the cluster that the agent is for
//	addonInstallNamespace       the namespace of the agent
//	installMode                 Default, or Hosted if the agent runs on another cluster
//	hubKubeConfigSecret         the Secret with the access to the hub
//	managedKubeConfigSecret     the Secret with the access to the cluster, in mode Hosted
//	hostingClusterCapabilities  the Kubernetes of the hosting cluster, from HostingCapabilities
//
// The last three are defaults; the others cannot be overridden. The release has the name of the add-on and the namespace of the agent, and
// .Capabilities.KubeVersion is that of the cluster.
//
// Embed charts with the prefix all: without it, Go leaves out files whose names start with a dot or an underscore, such as
// templates/_helpers.tpl.
//
//	//go:embed all:chart
//	var files embed.FS
//
// The package links Helm. It is apart from the others so that only add-ons with charts do.
package chart

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/values"
	"github.com/capstan-io/capstan/internal/machinery/addon/documents"
)

// Chart is a Helm chart of an add-on. It may be rendered from several goroutines at once.
type Chart struct {
	// Strict makes Render fail if a template refers to a value that does not exist.
	Strict bool
	// TrimCRDDescriptions removes descriptions from the schemas of CustomResourceDefinitions. They can be most of the size of a
	// definition, all of which is stored on the hub.
	TrimCRDDescriptions bool

	files []*archive.BufferedFile
}

// Load reads the chart in a directory of files, without the files that its .helmignore names. It fails if there is no chart or if it is
// not valid.
func Load(files fs.FS, dir string) (*Chart, error) {
	c := &Chart{}
	chart, err := fs.Sub(files, path.Clean(dir))
	if err == nil {
		c.files, err = read(chart)
	}
	if err != nil {
		return nil, fmt.Errorf("read the chart %s: %w", dir, err)
	}
	parsed, err := c.parse()
	if err == nil {
		err = parsed.Validate()
	}
	if err == nil {
		err = c.checkEmbedded(files)
	}
	if err != nil {
		return nil, fmt.Errorf("load the chart %s: %w", dir, err)
	}
	return c, nil
}

// parse returns a new copy of the chart, because rendering changes it: it switches dependencies on and off.
func (c *Chart) parse() (*chartv2.Chart, error) { return loader.LoadFiles(c.files) }

// Render returns the objects for a cluster, beginning with the CustomResourceDefinitions in the chart's directories crds. Namespaced
// objects without a namespace get the namespace of the release. Render knows whether a kind is namespaced for the kinds of Kubernetes
// and those that the chart defines; templates of other kinds have to set the namespace.
//
// Helm's install hooks become ordinary objects, and its pre-delete hooks become pre-delete hooks of the add-on. A Job or Pod that is both
// runs twice: the second one has the suffix -pre-delete, after a hash if the name would have more than 63 characters. All other hooks, such
// as tests, are omitted. Render fails, naming the file, if a template fails or its output is not an object.
func (c *Chart) Render(installation addon.Installation, given values.Values) ([]client.Object, error) {
	parsed, err := c.parse()
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	rendered, err := c.render(parsed, installation, given)
	if err != nil {
		return nil, fmt.Errorf("render the chart %s: %w", parsed.Name(), err)
	}
	var objects []client.Object
	for _, definition := range parsed.CRDObjects() {
		found, err := documents.Objects(definition.Filename, definition.File.Data)
		if err != nil {
			return nil, fmt.Errorf("render the chart %s: %w", parsed.Name(), err)
		}
		objects = append(objects, found...)
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if isText(name) {
			continue
		}
		found, err := documents.Objects(name, []byte(rendered[name]))
		if err != nil {
			return nil, fmt.Errorf("render the chart %s: %w", parsed.Name(), err)
		}
		objects = append(objects, found...)
	}
	if objects, err = atTheirTimes(objects); err != nil {
		return nil, fmt.Errorf("render the chart %s: %w", parsed.Name(), err)
	}
	setNamespaces(objects, installation.Namespace())
	for _, object := range objects {
		if c.TrimCRDDescriptions && isDefinition(object) {
			trim(object)
		}
	}
	return objects, nil
}

// isText reports whether a file is no template of objects: notes for people, and templates that others include.
func isText(name string) bool {
	base := path.Base(name)
	return base == "NOTES.txt" || strings.HasPrefix(base, "_")
}

func (c *Chart) render(parsed *chartv2.Chart, installation addon.Installation, given values.Values) (map[string]string, error) {
	all := withBuiltIn(installation, given)
	if err := chartutil.ProcessDependencies(parsed, all); err != nil {
		return nil, err
	}
	capabilities, err := capabilitiesOf(installation.Cluster)
	if err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: installation.AddOn.Name, Namespace: installation.Namespace(), IsInstall: true, Revision: 1}
	complete, err := util.ToRenderValues(parsed, all, release, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: c.Strict}.Render(parsed, complete)
}

func withBuiltIn(installation addon.Installation, given values.Values) values.Values {
	defaults := values.Values{
		"hubKubeConfigSecret":     installation.HubKubeconfigSecret(),
		"managedKubeConfigSecret": installation.ManagedKubeconfigSecret(),
	}
	builtIn := values.Values{
		"clusterName":           installation.Cluster.Name,
		"addonInstallNamespace": installation.Namespace(),
		"installMode":           string(installation.Mode()),
	}
	return values.Merge(values.Merge(defaults, given), builtIn)
}

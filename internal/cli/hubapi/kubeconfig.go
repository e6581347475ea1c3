// Package hubapi is the client of a hub for the command line: which kubeconfig leads there, a small client that starts in a
// few milliseconds, and errors that say what to do next.
package hubapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/homedir"

	"github.com/capstan-io/capstan/internal/apiclient"
)

// PlaygroundContext is the context of the hub in the kubeconfig that "capstan up" writes.
const PlaygroundContext = "hub"

// Target is what the flags say about the hub that a command is for.
type Target struct {
	// Kubeconfig is the value of --kubeconfig, empty without one.
	Kubeconfig string
	// Context is the value of --context, empty without one.
	Context string
	// Playground is the kubeconfig that "capstan up" writes, whether it is there or not; empty where the hub of a playground is of no use.
	Playground string
	// Cluster says that the target is a cluster, to install something in, and no hub.
	Cluster bool
	// MatchServerVersion says that requests fail unless the server is of the minor version of Kubernetes that this program is built with.
	MatchServerVersion bool
	// As is whom to impersonate; without a name of a user, nobody.
	As rest.ImpersonationConfig
	// InCluster is the access that the service account of a pod has, as rest.InClusterConfig finds it; nil where that is of no use.
	InCluster func() (*rest.Config, error)
}

// Source is where the access to a hub was found, for messages.
type Source struct {
	File string
	// Context is empty for what is read otherwise than by a context.
	Context    string
	Playground bool
	// Pod says that it is the service account of the pod that the program runs in, in no kubeconfig.
	Pod bool
	// Invitation says that it is the token of an invitation, in no file.
	Invitation bool
	// DebugServer says that it is used for the server of --debug-server.
	DebugServer bool
	// Cluster says that it leads to a cluster that need not be a hub.
	Cluster bool
	// Before is the kubeconfig of the user that leads elsewhere, and would be used if there were no playground. It is empty where there is
	// none, and where the user has named a kubeconfig or a context.
	Before string
}

// String names the source in a sentence.
func (s Source) String() string {
	if s.Invitation {
		return "--hub-token"
	}
	if s.Pod {
		return "the service account of this pod"
	}
	if s.Context == "" {
		return s.File
	}
	return fmt.Sprintf("context %q of %s", s.Context, s.File)
}

// candidate is a kubeconfig that may lead to the hub. It may be a list of files, which KUBECONFIG allows; that of a pod is in no file.
type candidate struct {
	files      []string
	playground bool
	pod        bool
	namedBy    string // the flag or variable, empty if nobody named it
	before     string // as in Source
}

func (c candidate) String() string { return strings.Join(c.files, string(filepath.ListSeparator)) }

// Resolve finds the access to the hub. The first of these decides: --kubeconfig, KUBECONFIG, the playground's kubeconfig,
// ~/.kube/config, and where no context is named either, the service account of the pod. The two kubeconfigs that nobody names are passed
// over when they do not exist or lack the context of --context; a context that leads to different servers in both is an error.
func (t Target) Resolve() (*rest.Config, Source, error) {
	chosen, config, err := t.load()
	if err != nil {
		return nil, Source{}, err
	}
	context, source := t.contextOf(chosen, config), t.sourceOf(chosen, config)
	if context == "" {
		return nil, source, fmt.Errorf("%s has no current context: choose one with --context: %s", chosen, contextNames(config))
	}
	if config.Contexts[context] == nil {
		return nil, source, fmt.Errorf("%s has no context %q: choose one with --context: %s", chosen, context, contextNames(config))
	}
	restConfig, err := clientcmd.NewNonInteractiveClientConfig(*config, context, nil, nil).ClientConfig()
	if err != nil {
		return nil, source, fmt.Errorf("%s cannot be used: %w", source, err)
	}
	if t.MatchServerVersion {
		err = matchVersion(restConfig)
	}
	return restConfig, source, err
}

// HubKubeconfig is the context that leads to the hub, alone, with the content of the files that it names. The files of tokens stay
// files: whoever uses one reads it again.
func (t Target) HubKubeconfig() (*clientcmdapi.Config, Source, error) {
	chosen, config, err := t.load()
	if err != nil {
		return nil, Source{}, err
	}
	if _, _, err := t.Resolve(); err != nil {
		return nil, Source{}, err
	}
	source := t.sourceOf(chosen, config)
	config.CurrentContext = t.contextOf(chosen, config)
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		return nil, source, fmt.Errorf("%s cannot be used: %w", source, err)
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return nil, source, fmt.Errorf("%s cannot be used: %w", source, err)
	}
	return config, source, nil
}

// contextOf is the context to use. The playground's kubeconfig has one for each of its clusters too, and a person may have
// switched to one of those; commands of this program are for the hub all the same.
func (t Target) contextOf(chosen candidate, config *clientcmdapi.Config) string {
	switch {
	case t.Context != "":
		return t.Context
	case chosen.playground:
		return PlaygroundContext
	default:
		return config.CurrentContext
	}
}

// sourceOf is where the access was found, for messages.
func (t Target) sourceOf(chosen candidate, config *clientcmdapi.Config) Source {
	if chosen.pod {
		return Source{Pod: true, Cluster: t.Cluster}
	}
	return Source{File: chosen.String(), Context: t.contextOf(chosen, config), Playground: chosen.playground, Cluster: t.Cluster,
		Before: chosen.before}
}

func (t Target) load() (candidate, *clientcmdapi.Config, error) {
	if explicit := t.explicit(); explicit != nil {
		config, err := read(*explicit)
		if err == nil && len(config.Contexts) == 0 {
			err = t.emptyError(*explicit)
		}
		return *explicit, config, err
	}
	return t.loadDefault()
}

// loadDefault finds the kubeconfig to use where nobody has named one.
func (t Target) loadDefault() (candidate, *clientcmdapi.Config, error) {
	var chosen *candidate
	var config *clientcmdapi.Config
	var looked, contexts []string
	for _, c := range t.defaults() {
		next, err := read(c)
		switch {
		case err != nil && chosen == nil:
			return c, nil, err
		case err != nil: // it leads nowhere
		case !t.fits(c, next):
			looked, contexts = append(looked, c.String()), append(contexts, sortedContexts(next)...)
		case chosen == nil:
			chosen, config = &c, next
		case apiclient.SameServer(t.serverOf(*chosen, config), t.serverOf(c, next)):
		case t.Context != "":
			return candidate{}, nil, t.ambiguousError(*chosen, c)
		default:
			chosen.before = c.String()
		}
	}
	if chosen != nil {
		return *chosen, config, nil
	}
	if config := t.kubeconfigOfPod(); config != nil {
		return candidate{pod: true}, config, nil
	}
	return candidate{}, nil, t.nowhereError(looked, contexts)
}

// kubeconfigOfPod is a kubeconfig with the files of the service account of the pod; nil outside of pods, and where a context is named.
func (t Target) kubeconfigOfPod() *clientcmdapi.Config {
	if t.Context != "" || t.InCluster == nil {
		return nil
	}
	access, err := t.InCluster()
	if err != nil {
		return nil
	}
	const name = "pod"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthority: access.CAFile}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: access.BearerTokenFile}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return config
}

// fits reports whether a kubeconfig has the context of --context. Without the flag it has any; that of the playground has its hub, which is
// not there when only contexts of a person are left.
func (t Target) fits(c candidate, config *clientcmdapi.Config) bool {
	if t.Context == "" && !c.playground {
		return len(config.Contexts) > 0
	}
	return config.Contexts[t.contextOf(c, config)] != nil
}

// serverOf is where a kubeconfig leads by the context to use; empty if that is nowhere.
func (t Target) serverOf(c candidate, config *clientcmdapi.Config) string {
	return serverBy(config, t.contextOf(c, config))
}

// ambiguousError is that a context could be that of the playground, or one of the user.
func (t Target) ambiguousError(playground, own candidate) error {
	return fmt.Errorf("--context: %q is a context of the playground, in %s, and of %s: name the file that you mean with --kubeconfig, "+
		"or remove the playground, with all that is in it and its contexts, with \"capstan down --purge\"", t.Context, playground, own)
}

// nowhereError is that no kubeconfig fits of those that were looked for.
func (t Target) nowhereError(looked, contexts []string) error {
	if len(looked) == 0 {
		return errors.New("HOME is not set, so there is no kubeconfig to look for: name one with --kubeconfig or KUBECONFIG")
	}
	if t.Context != "" {
		return fmt.Errorf("no context %q in %s (contexts there: %s): choose another, or name the kubeconfig it is in with --kubeconfig",
			t.Context, strings.Join(looked, " or "), cmp.Or(strings.Join(contexts, ", "), "none"))
	}
	if t.Cluster {
		return fmt.Errorf("no kubeconfig leads to a cluster (looked for %s): name one with --kubeconfig or KUBECONFIG",
			strings.Join(looked, " and "))
	}
	return fmt.Errorf("no kubeconfig leads to a hub (looked for %s): start a hub on this machine with \"capstan up\", "+
		"or name the kubeconfig of one with --kubeconfig or KUBECONFIG", strings.Join(looked, " and "))
}

// emptyError is that a kubeconfig that was named leads nowhere.
func (t Target) emptyError(named candidate) error {
	if t.Cluster {
		return fmt.Errorf("%s: kubeconfig %s is missing or empty: name one that leads to a cluster with --kubeconfig", named.namedBy, named)
	}
	return fmt.Errorf("%s: kubeconfig %s is missing or empty: name one that leads to a hub with --kubeconfig, "+
		"or start a hub on this machine with \"capstan up\"", named.namedBy, named)
}

// explicit is the kubeconfig that was named, nil if none was. That of the playground stays that, however it is named.
func (t Target) explicit() *candidate {
	if t.Kubeconfig != "" {
		return &candidate{files: []string{t.Kubeconfig}, playground: t.isPlayground(t.Kubeconfig), namedBy: "--kubeconfig"}
	}
	variable := clientcmd.RecommendedConfigPathEnvVar
	if files := filesIn(os.Getenv(variable)); len(files) > 0 {
		return &candidate{files: files, playground: len(files) == 1 && t.isPlayground(files[0]), namedBy: variable}
	}
	return nil
}

// filesIn are the files of a list as KUBECONFIG has them. Empty entries, as behind the last colon, are no files.
func filesIn(list string) []string {
	return slices.DeleteFunc(filepath.SplitList(list), func(file string) bool { return file == "" })
}

func (t Target) isPlayground(file string) bool { return SameFile(file, t.Playground) }

// SameFile reports whether two paths lead to the same file.
func SameFile(a, b string) bool {
	first, errFirst := os.Stat(a)
	second, errSecond := os.Stat(b)
	return errFirst == nil && errSecond == nil && os.SameFile(first, second)
}

// defaults are the kubeconfigs to look for where none is named. A user without a home has none there.
func (t Target) defaults() []candidate {
	var candidates []candidate
	if t.Playground != "" {
		candidates = append(candidates, candidate{files: []string{t.Playground}, playground: true})
	}
	if home := homedir.HomeDir(); home != "" {
		file := filepath.Join(home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
		candidates = append(candidates, candidate{files: []string{file}, playground: t.isPlayground(file)}) // by a link
	}
	return candidates
}

// read merges the files of a candidate; those that do not exist count as empty.
func read(c candidate) (*clientcmdapi.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: c.files}
	config, err := rules.Load()
	if err == nil {
		return config, nil
	}
	for _, file := range c.files {
		if err := unreadable(file); err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w: let your user read it, or name another one with --kubeconfig", c, err)
		}
	}
	return nil, fmt.Errorf("kubeconfig %s is broken: %w: repair it, or name another one with --kubeconfig", c, err)
}

// unreadable is why a file cannot be read, nil if it can. clientcmd only says so in words.
func unreadable(file string) error {
	opened, err := os.Open(file)
	if err != nil {
		return err
	}
	return opened.Close()
}

// Contexts are the names of the contexts a person can choose from, for completion.
func (t Target) Contexts() []string {
	candidates := t.defaults()
	if explicit := t.explicit(); explicit != nil {
		candidates = []candidate{*explicit}
	}
	var names []string
	for _, c := range candidates {
		if config, err := read(c); err == nil {
			names = append(names, sortedContexts(config)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func contextNames(config *clientcmdapi.Config) string {
	return strings.Join(sortedContexts(config), ", ")
}

func sortedContexts(config *clientcmdapi.Config) []string {
	return slices.Sorted(maps.Keys(config.Contexts))
}

// ServerIn is where the current context of a kubeconfig leads; empty if that is nowhere.
func ServerIn(kubeconfig []byte) string {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return ""
	}
	return serverBy(config, config.CurrentContext)
}

func serverBy(config *clientcmdapi.Config, context string) string {
	if config.Contexts[context] == nil || config.Clusters[config.Contexts[context].Cluster] == nil {
		return ""
	}
	return config.Clusters[config.Contexts[context].Cluster].Server
}

package walkthrough

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/cmd/search"
	"helm.sh/helm/v4/pkg/getter"
	"helm.sh/helm/v4/pkg/helmpath"
	"helm.sh/helm/v4/pkg/kube"
	repo "helm.sh/helm/v4/pkg/repo/v1"
	"helm.sh/helm/v4/pkg/strvals"

	"github.com/capstan-io/capstan/deploy/charts/repository"
)

// chartRelease is the version that `make charts` gives the charts of this commit and the images in them.
const chartRelease = "v1.0.0"

// serveCharts serves what `make charts` writes, and returns the URL.
func serveCharts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := repository.Write(filepath.Join("..", "..", "deploy", "charts"), dir, chartRelease, ""); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	return server.URL
}

// helmUser is one of helm, with repositories of their own. What the program does for a command, its library does.
type helmUser struct {
	cluster  cluster
	settings *cli.EnvSettings
}

func newHelmUser(t *testing.T, of cluster) helmUser {
	t.Helper()
	dir := t.TempDir()
	return helmUser{cluster: of, settings: &cli.EnvSettings{
		RepositoryConfig: filepath.Join(dir, "repositories.yaml"), RepositoryCache: filepath.Join(dir, "repository"),
		ContentCache: filepath.Join(dir, "content"), PluginsDirectory: filepath.Join(dir, "plugins"),
	}}
}

// does runs a command, which must succeed, and returns the names of the charts that it finds, if it searches.
func (u helmUser) does(t *testing.T, command string) (found []string) {
	t.Helper()
	flags := pflag.NewFlagSet(command, pflag.ContinueOnError)
	namespace := flags.StringP("namespace", "n", "", "")
	settings := flags.StringArray("set", nil, "")
	if err := flags.Parse(strings.Fields(command)); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	var err error
	args := flags.Args()
	switch {
	case strings.HasPrefix(command, "helm repo add ") && len(args) == 5:
		err = u.addRepository(args[3], args[4])
	case command == "helm repo update":
		err = u.updateRepositories()
	case strings.HasPrefix(command, "helm search repo ") && len(args) == 4:
		found, err = u.searchRepositories(args[3])
	case len(args) == 4:
		err = u.release(t, args[1], args[2], args[3], *namespace, *settings)
	default:
		err = fmt.Errorf("the test does not know this command, with the arguments %q", args)
	}
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return found
}

// addRepository downloads the index of a repository, and remembers it.
func (u helmUser) addRepository(name, url string) error {
	entry := &repo.Entry{Name: name, URL: url}
	if err := u.downloadIndex(entry); err != nil {
		return err
	}
	file := repo.NewFile()
	file.Update(entry)
	const private = 0o600
	return file.WriteFile(u.settings.RepositoryConfig, private)
}

func (u helmUser) updateRepositories() error {
	file, err := repo.LoadFile(u.settings.RepositoryConfig)
	if err != nil {
		return err
	}
	for _, entry := range file.Repositories {
		if err := u.downloadIndex(entry); err != nil {
			return err
		}
	}
	return nil
}

func (u helmUser) downloadIndex(of *repo.Entry) error {
	from, err := repo.NewChartRepository(of, getter.All(u.settings))
	if err != nil {
		return err
	}
	from.CachePath = u.settings.RepositoryCache
	_, err = from.DownloadIndexFile()
	return err
}

// searchRepositories returns the charts that match a word, by the indexes as they were downloaded last.
func (u helmUser) searchRepositories(word string) ([]string, error) {
	file, err := repo.LoadFile(u.settings.RepositoryConfig)
	if err != nil {
		return nil, err
	}
	charts := search.NewIndex()
	for _, entry := range file.Repositories {
		index, err := repo.LoadIndexFile(filepath.Join(u.settings.RepositoryCache, helmpath.CacheIndexFile(entry.Name)))
		if err != nil {
			return nil, err
		}
		const versions = false
		charts.AddRepo(entry.Name, index, versions)
	}
	const worstScore, regularExpression = 25, false // of the program
	results, err := charts.Search(word, worstScore, regularExpression)
	var names []string
	for _, result := range results {
		names = append(names, result.Name)
	}
	return names, err
}

// release installs or upgrades a release of a chart of a repository.
func (u helmUser) release(t *testing.T, verb, name, chart, namespace string, settings []string) error {
	t.Helper()
	values := map[string]any{}
	for _, setting := range settings {
		if err := strvals.ParseInto(setting, values); err != nil {
			return err
		}
	}
	var newest action.ChartPathOptions
	archive, err := newest.LocateChart(chart, u.settings)
	if err != nil {
		return err
	}
	loaded, err := loader.Load(archive)
	if err != nil {
		return err
	}
	config := helm(t, u.cluster.Cluster, namespace)
	switch verb {
	case "install":
		install := action.NewInstall(config)
		install.ReleaseName, install.Namespace, install.WaitStrategy = name, namespace, kube.HookOnlyStrategy
		_, err = install.RunWithContext(t.Context(), loaded, values)
	case "upgrade":
		upgrade := action.NewUpgrade(config)
		upgrade.Namespace, upgrade.WaitStrategy = namespace, kube.HookOnlyStrategy
		_, err = upgrade.RunWithContext(t.Context(), name, loaded, values)
	default:
		err = fmt.Errorf("the test knows no helm %s", verb)
	}
	return err
}

package charts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/getter"
	repo "helm.sh/helm/v4/pkg/repo/v1"
)

// Reference is a chart of a repository.
type Reference struct {
	Repository, Name string
	// Version is the newest if it is empty.
	Version string
	// CAFile has PEM certificates to verify the repository with, instead of those of this machine.
	CAFile string
}

// Load downloads a chart. It fails if the chart does not have the digest that the index of the repository has for it. Nothing of it
// stays on the disk.
func Load(of Reference) (*chart.Chart, error) {
	dir, err := os.MkdirTemp("", "capstan-chart-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	getters := getter.All(&cli.EnvSettings{PluginsDirectory: filepath.Join(dir, "plugins")})
	index, err := of.index(getters, dir)
	if err != nil {
		return nil, of.unreached(err)
	}
	version, err := of.find(index)
	if err != nil {
		return nil, err
	}
	from, archive, err := of.download(getters, version)
	if err != nil {
		return nil, of.unreached(err)
	}
	if err := checkDigest(archive, version.Digest); err != nil {
		return nil, fmt.Errorf("%s is not version %s of chart %s in the index of the Helm repository %s: %w; it was damaged or "+
			"replaced, so get the copy of the repository again, or name another one with --repository",
			from, version.Version, of.Name, of.Repository, err)
	}
	loaded, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("read chart %s of %s: %w", of.Name, of.Repository, err)
	}
	return loaded, nil
}

// index downloads the index of the repository, by way of a folder.
func (of Reference) index(getters getter.Providers, dir string) (*repo.IndexFile, error) {
	repository, err := repo.NewChartRepository(&repo.Entry{Name: "repository", URL: of.Repository, CAFile: of.CAFile}, getters)
	if err != nil {
		return nil, err
	}
	repository.CachePath = dir
	file, err := repository.DownloadIndexFile()
	if err != nil {
		return nil, err
	}
	return repo.LoadIndexFile(file)
}

// find returns the version of the chart that is asked for.
func (of Reference) find(in *repo.IndexFile) (*repo.ChartVersion, error) {
	version, err := in.Get(of.Name, of.Version)
	if errors.Is(err, repo.ErrNoChartName) {
		return nil, fmt.Errorf("the Helm repository %s has no chart %s: name the one that has it with --repository", of.Repository, of.Name)
	}
	if err != nil {
		missing := "version " + of.Version
		if of.Version == "" {
			missing = "a version that is no pre-release"
		}
		return nil, fmt.Errorf("the Helm repository %s does not have %s of chart %s: it has %s", of.Repository, missing, of.Name,
			newest(in.Entries[of.Name]))
	}
	return version, nil
}

// newest lists some versions of those in an index, which are sorted.
func newest(versions repo.ChartVersions) string {
	const most = 5
	var listed []string
	for _, version := range versions[:min(len(versions), most)] {
		listed = append(listed, version.Version)
	}
	if len(listed) == 0 {
		return "none"
	}
	if more := len(versions) - len(listed); more > 0 {
		listed = append(listed, fmt.Sprintf("and %d older ones", more))
	}
	return strings.Join(listed, ", ")
}

// download returns the archive with a version, and where it comes from.
func (of Reference) download(getters getter.Providers, version *repo.ChartVersion) (from string, archive []byte, err error) {
	if len(version.URLs) == 0 {
		return "", nil, fmt.Errorf("its index says not where version %s is", version.Version)
	}
	from, err = repo.ResolveReferenceURL(of.Repository, version.URLs[0])
	if err != nil {
		return "", nil, err
	}
	parsed, err := url.Parse(from)
	if err != nil {
		return "", nil, err
	}
	client, err := getters.ByScheme(parsed.Scheme)
	if err != nil {
		return "", nil, err
	}
	content, err := client.Get(from, getter.WithURL(from), getter.WithTLSClientConfig("", "", of.CAFile),
		getter.WithAcceptHeader("application/gzip,application/octet-stream"))
	if err != nil {
		return "", nil, err
	}
	return from, content.Bytes(), nil
}

// checkDigest fails if the SHA-256 of an archive is another one than the index has, if it has one.
func checkDigest(archive []byte, indexed string) error {
	sum := sha256.Sum256(archive)
	got, want := hex.EncodeToString(sum[:]), strings.ToLower(strings.TrimPrefix(indexed, "sha256:"))
	if want != "" && got != want {
		return fmt.Errorf("its SHA-256 is %s, and not %s", got, want)
	}
	return nil
}

// unreached says what to do about a repository that does not answer as one.
func (of Reference) unreached(err error) error {
	version := "the newest version"
	if of.Version != "" {
		version = "version " + of.Version
	}
	return fmt.Errorf("get %s of chart %s from the Helm repository %s: %w; check that this machine reaches it (HTTPS_PROXY names a proxy, "+
		"--repository-ca-file the certificates to verify it with), or name a copy that it reaches with --repository",
		version, of.Name, of.Repository, err)
}

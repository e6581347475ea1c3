package install

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
)

// bundle says which versions belong together. An empty version is the newest.
type bundle struct {
	// OCM is the release of Open Cluster Management. The images of Capstan have versions of their own, so it is no tag of theirs; in a file
	// of --bundle-version-overrides it is.
	OCM string `json:"ocm"`
	// PolicyAddOn is the version of the add-on governance-policy-framework.
	PolicyAddOn string `json:"policy_addon"`
}

const (
	defaultBundle = "default"
	latestBundle  = "latest"
)

// bundles are the values of --bundle-version. The last one is the default.
var bundles = []bundle{
	{"v1.1.0", "v0.16.0"}, {"v1.1.1", "v0.16.0"}, {"v1.1.3", "v0.16.0"},
	{"v1.2.0", "v0.17.0"}, {"v1.2.1", "v0.17.0"},
	{"v1.3.0", "v0.18.0"}, {"v1.3.1", "v0.18.0"},
}

// bundleFlags choose a bundle.
type bundleFlags struct{ version, overrides string }

func (f *bundleFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.version, "bundle-version", defaultBundle, "versions that belong together: "+strings.Join(bundleNames(), ", ")+
		"; images of Capstan are those of this program's version for all of them but latest")
	flags.StringVar(&f.overrides, "bundle-version-overrides", "",
		`JSON file with versions that replace those of the bundle, such as {"ocm": "v0.1.0", "policy_addon": "v0.18.0"}; ocm is the tag of the images of Capstan`)
	options.Complete(command, "bundle-version", cobra.FixedCompletions(bundleNames(), cobra.ShellCompDirectiveNoFileComp))
}

func bundleNames() []string {
	names := []string{defaultBundle, latestBundle}
	for _, b := range bundles {
		names = append(names, strings.TrimPrefix(b.OCM, "v"))
	}
	return names
}

// imageTag is the tag of the images of the chosen bundle. Every bundle of Open Cluster Management that is known is one that the release of
// this program implements, so its images are those of this release; latest is the tag of that name, and a file names the tag itself.
func (f *bundleFlags) imageTag(release string) (string, error) {
	if _, err := f.bundle(); err != nil {
		return "", err
	}
	if f.overrides != "" {
		var named bundle
		content, err := os.ReadFile(f.overrides)
		if err == nil {
			err = json.Unmarshal(content, &named)
		}
		if err != nil || named.OCM != "" {
			return named.OCM, options.FlagError("--bundle-version-overrides", err)
		}
	}
	if f.version == latestBundle {
		return latestBundle, nil
	}
	if commit := commitVersion.FindStringSubmatch(release); commit != nil {
		return "devel-" + commit[1], nil // as "make images" names those of a commit
	}
	return strings.ReplaceAll(release, "+", "_"), nil // which no tag may contain
}

// commitVersion is the version that Go gives a build of a commit that is no release.
var commitVersion = regexp.MustCompile(`^v.*[-.][0-9]{14}-([0-9a-f]{12})(?:\+dirty)?$`)

// bundle is the chosen one.
func (f *bundleFlags) bundle() (bundle, error) {
	chosen := bundles[len(bundles)-1]
	switch f.version {
	case defaultBundle:
	case latestBundle:
		chosen = bundle{OCM: latestBundle}
	default:
		at := slices.IndexFunc(bundles, func(b bundle) bool { return b.OCM == "v"+strings.TrimPrefix(f.version, "v") })
		if at < 0 {
			return bundle{}, fmt.Errorf("--bundle-version: %q is none of %s", f.version, strings.Join(bundleNames(), ", "))
		}
		chosen = bundles[at]
	}
	if f.overrides == "" {
		return chosen, nil
	}
	content, err := os.ReadFile(f.overrides)
	if err == nil {
		err = json.Unmarshal(content, &chosen)
	}
	return chosen, options.FlagError("--bundle-version-overrides", err)
}

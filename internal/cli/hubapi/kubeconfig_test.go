package hubapi_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// writeKubeconfig writes a kubeconfig with contexts whose servers are https://<context>.<name of the file>.
func writeKubeconfig(t *testing.T, file, current string, contexts ...string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.CurrentContext = current
	for _, name := range contexts {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name + "." + filepath.Base(file)}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "t"}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// CA-01: which kubeconfig and context a command uses.
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	named := writeKubeconfig(t, filepath.Join(dir, "named"), "a", "a", "b")
	env := writeKubeconfig(t, filepath.Join(dir, "env"), "a", "a")
	more := writeKubeconfig(t, filepath.Join(dir, "more"), "", "c")
	playground := writeKubeconfig(t, filepath.Join(dir, "playground"), "cluster1", "hub", "cluster1")
	standard := writeKubeconfig(t, filepath.Join(dir, ".kube", "config"), "a", "a", "prod")
	none := filepath.Join(dir, "none")
	empty := writeKubeconfig(t, filepath.Join(dir, "empty"), "")

	tests := map[string]struct {
		kubeconfig, env, playground, context string
		server                               string
		foreign                              bool // not counted as the playground's
		fails                                []string
	}{
		"the flag goes first":         {kubeconfig: named, env: env, playground: playground, server: "https://a.named"},
		"the flag with a context":     {kubeconfig: named, context: "b", server: "https://b.named"},
		"the flag is not passed over": {kubeconfig: named, context: "prod", fails: []string{named, `"prod"`, "a, b"}},
		"a missing file that was named": {kubeconfig: none, playground: playground,
			fails: []string{"--kubeconfig", none, "missing or empty"}},
		"a missing file of KUBECONFIG": {env: none, playground: playground,
			fails: []string{"KUBECONFIG: kubeconfig " + none, "capstan up"}},
		"an empty file that was named":          {kubeconfig: empty, fails: []string{empty, "missing or empty"}},
		"KUBECONFIG goes before the playground": {env: env, playground: playground, server: "https://a.env"},
		"KUBECONFIG may be a list":              {env: env + ":" + more, context: "c", server: "https://c.more"},
		"empty entries of KUBECONFIG":           {env: "::" + env + "::" + more + ":", context: "c", server: "https://c.more"},
		"the playground between empty entries":  {env: ":" + playground + ":", playground: playground, server: "https://hub.playground"},
		"KUBECONFIG with nothing but a colon":   {env: ":", server: "https://a.config"},
		"the playground, and its hub always":    {playground: playground, server: "https://hub.playground"},
		"the playground with a context":         {playground: playground, context: "cluster1", server: "https://cluster1.playground"},
		"a playground without the context":      {playground: playground, context: "prod", server: "https://prod.config"},
		"the playground by KUBECONFIG":          {env: playground, playground: playground, server: "https://hub.playground"},
		"the playground by the flag":            {kubeconfig: playground, playground: playground, server: "https://hub.playground"},
		"the playground and another by KUBECONFIG": {env: playground + ":" + more, playground: playground,
			server: "https://cluster1.playground", foreign: true},
		"no playground": {playground: none, server: "https://a.config"},
		"a context that is nowhere": {playground: playground, context: "gone",
			fails: []string{`"gone"`, playground, standard, "cluster1, hub, a, prod"}},
		"no current context in the file of the flag": {kubeconfig: more, fails: []string{more, "no current context", "c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", dir)
			t.Setenv("KUBECONFIG", test.env)
			target := hubapi.Target{Kubeconfig: test.kubeconfig, Context: test.context, Playground: test.playground}
			config, source, err := target.Resolve()
			if files := filepath.SplitList(source.File); slices.Contains(files, "") {
				t.Errorf("files %q: one is no file", files)
			}
			if len(test.fails) > 0 {
				if err == nil {
					t.Fatalf("resolved to %s, want an error", config.Host)
				}
				for _, want := range test.fails {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q does not mention %q", err, want)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != test.server {
				t.Errorf("server %s by %s, want %s", config.Host, source, test.server)
			}
			if source.Playground != (strings.HasSuffix(test.server, ".playground") && !test.foreign) {
				t.Errorf("source %+v of %s", source, test.server)
			}
		})
	}
}

// CA-01: where nobody names a kubeconfig, a context that leads to two servers leads to none, and a kubeconfig that the playground's goes
// before is remembered.
func TestResolveWithPlayground(t *testing.T) {
	tests := map[string]struct {
		playground, own, context string // what the kubeconfigs have, with the contexts that they share
		named                    bool   // the user's own kubeconfig, with --kubeconfig
		byVariable               bool   // the same with KUBECONFIG
		cluster                  bool   // the playground is of no use
		server                   string
		before                   bool
		fails                    []string
	}{
		"a context of both":               {playground: "hub cluster1", own: "hub prod", context: "hub", fails: []string{`--context: "hub"`}},
		"a cluster of both":               {playground: "hub cluster1", own: "cluster1", context: "cluster1", fails: []string{`"cluster1"`}},
		"with a kubeconfig named":         {playground: "hub", own: "hub", context: "hub", named: true, server: "https://hub.config"},
		"with a kubeconfig by a variable": {playground: "hub", own: "hub", context: "hub", byVariable: true, server: "https://hub.config"},
		"for an installation":             {playground: "hub", own: "hub", context: "hub", cluster: true, server: "https://hub.config"},
		"a context of the playground":     {playground: "hub cluster1", own: "prod", context: "hub", server: "https://hub.playground"},
		"a context of the user":           {playground: "hub cluster1", own: "hub prod", context: "prod", server: "https://prod.config"},
		"a context of neither": {playground: "hub", own: "prod", context: "gone",
			fails: []string{`no context "gone"`, "contexts there: hub, prod"}},
		"no context":                     {playground: "hub cluster1", own: "hub prod", server: "https://hub.playground", before: true},
		"no context, an own one named":   {playground: "hub", own: "hub prod", named: true, server: "https://hub.config"},
		"no context, an installation":    {playground: "hub", own: "prod", cluster: true, server: "https://prod.config"},
		"no context, nothing of the own": {playground: "hub cluster1", server: "https://hub.playground"},
		"no context, a purged one":       {playground: "mine", own: "hub prod", server: "https://hub.config"},
		"no context, no playground":      {own: "hub prod", server: "https://hub.config"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			playground, own := filepath.Join(dir, "playground"), filepath.Join(dir, ".kube", "config")
			for file, contexts := range map[string]string{playground: test.playground, own: test.own} {
				if names := strings.Fields(contexts); len(names) > 0 {
					writeKubeconfig(t, file, names[0], names...)
				}
			}
			t.Setenv("HOME", dir)
			t.Setenv("KUBECONFIG", "")
			target := hubapi.Target{Context: test.context, Playground: playground, Cluster: test.cluster}
			switch {
			case test.cluster:
				target.Playground = ""
			case test.named:
				target.Kubeconfig = own
			case test.byVariable:
				t.Setenv("KUBECONFIG", own)
			}
			config, source, err := target.Resolve()
			if len(test.fails) > 0 {
				mention(t, err, append(test.fails, playground, own, "--kubeconfig")...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != test.server {
				t.Errorf("server %s by %s, want %s", config.Host, source, test.server)
			}
			if want := map[bool]string{true: own}[test.before]; source.Before != want {
				t.Errorf("before %q, want %q", source.Before, want)
			}
		})
	}
}

// CA-01: the user's own kubeconfig may be that of the playground, or have its contexts, too. One that cannot be read leads nowhere.
func TestResolveWithPlaygroundTwice(t *testing.T) {
	for name, test := range map[string]struct {
		put     func(playground, own string) error
		context string
	}{
		"a link":                        {put: os.Symlink},
		"a link, and a context":         {put: os.Symlink, context: "hub"},
		"a link to one of its clusters": {put: os.Symlink, context: "cluster1"},
		"a copy":                        {put: copyFile, context: "hub"},
		"one that is broken": {context: "hub", put: func(_, own string) error {
			return os.WriteFile(own, []byte("{"), 0o600)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("HOME", dir)
			t.Setenv("KUBECONFIG", "")
			playground := writeKubeconfig(t, filepath.Join(dir, "playground"), "cluster1", "hub", "cluster1")
			if err := os.Mkdir(filepath.Join(dir, ".kube"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := test.put(playground, filepath.Join(dir, ".kube", "config")); err != nil {
				t.Fatal(err)
			}
			config, source, err := hubapi.Target{Context: test.context, Playground: playground}.Resolve()
			if err != nil {
				t.Fatal(err)
			}
			want := "https://hub.playground"
			if test.context == "cluster1" {
				want = "https://cluster1.playground"
			}
			if config.Host != want || !source.Playground || source.Before != "" {
				t.Errorf("server %s by %+v, want %s", config.Host, source, want)
			}
		})
	}
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

func TestResolveNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", "")
	_, _, err := hubapi.Target{Playground: filepath.Join(dir, "playground")}.Resolve()
	for _, want := range []string{"capstan up", "--kubeconfig", filepath.Join(dir, ".kube", "config")} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %q", err, want)
		}
	}
}

// CA-01: where no kubeconfig is named, and none is where one is looked for, a pod has the access of its service account, also as a
// kubeconfig.
func TestResolveInPod(t *testing.T) {
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	if err := errors.Join(os.WriteFile(token, []byte("of-the-pod"), 0o600), os.WriteFile(ca, []byte("authority"), 0o600)); err != nil {
		t.Fatal(err)
	}
	inPod := func() (*rest.Config, error) {
		return &rest.Config{Host: "https://10.0.0.1:443", BearerToken: "of-the-pod", BearerTokenFile: token,
			TLSClientConfig: rest.TLSClientConfig{CAFile: ca}}, nil
	}
	outside := func() (*rest.Config, error) { return nil, rest.ErrNotInCluster }
	named := writeKubeconfig(t, filepath.Join(dir, "named"), "a", "a")
	for name, test := range map[string]struct {
		inCluster            func() (*rest.Config, error)
		target               hubapi.Target
		withoutHome, withOwn bool
		server               string // of a kubeconfig; empty for the pod
		fails                string
	}{
		"in a pod":                       {inCluster: inPod},
		"in a pod without a home":        {inCluster: inPod, withoutHome: true},
		"for an installation":            {inCluster: inPod, target: hubapi.Target{Cluster: true}},
		"with a kubeconfig named":        {inCluster: inPod, target: hubapi.Target{Kubeconfig: named}, server: "https://a.named"},
		"with a kubeconfig that is gone": {inCluster: inPod, target: hubapi.Target{Kubeconfig: named + "-gone"}, fails: "missing or empty"},
		"with a playground":              {inCluster: inPod, target: hubapi.Target{Playground: named, Context: "a"}, server: "https://a.named"},
		"with an own kubeconfig":         {inCluster: inPod, withOwn: true, server: "https://b.config"},
		"with a context":                 {inCluster: inPod, target: hubapi.Target{Context: "a"}, fails: `no context "a"`},
		"outside of pods":                {inCluster: outside, fails: "no kubeconfig leads to a hub"},
		"outside of pods without a home": {inCluster: outside, withoutHome: true, fails: "HOME is not set"},
		"where it is of no use":          {fails: "no kubeconfig leads to a hub"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if test.withOwn {
				writeKubeconfig(t, filepath.Join(home, ".kube", "config"), "b", "b")
			}
			if test.withoutHome {
				home = ""
			}
			t.Setenv("HOME", home)
			t.Setenv("KUBECONFIG", "")
			target := test.target
			target.InCluster = test.inCluster
			access, source, err := target.Resolve()
			if test.fails != "" {
				mention(t, err, test.fails)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if test.server != "" {
				if access.Host != test.server || source.Pod {
					t.Errorf("server %s by %s, want %s", access.Host, source, test.server)
				}
				return
			}
			if access.Host != "https://10.0.0.1:443" || access.BearerTokenFile != token || access.CAFile != ca || !source.Pod ||
				source.File != "" || source.Context != "" || source.String() != "the service account of this pod" {
				t.Errorf("server %s, token of %s, authority of %s, by %+v", access.Host, access.BearerTokenFile, access.CAFile, source)
			}
			config, _, err := target.HubKubeconfig()
			if err != nil {
				t.Fatal(err)
			}
			of := config.Contexts[config.CurrentContext]
			if cluster, user := config.Clusters[of.Cluster], config.AuthInfos[of.AuthInfo]; cluster.Server != "https://10.0.0.1:443" ||
				string(cluster.CertificateAuthorityData) != "authority" || user.TokenFile != token {
				t.Errorf("kubeconfig with %+v, %+v", cluster, user)
			}
			if known := target.Known(); len(known) > 0 {
				t.Errorf("kubeconfigs have %+v", known)
			}
		})
	}
}

func TestResolveBroken(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	file := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (hubapi.Target{Kubeconfig: file}).Resolve(); err == nil || !strings.Contains(err.Error(), file+" is broken") {
		t.Errorf("error %v does not say that %s is broken", err, file)
	}
}

func TestResolveUnreadable(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	folder := t.TempDir() // cannot be read as a file, whoever one is
	_, _, err := (hubapi.Target{Kubeconfig: folder}).Resolve()
	if err == nil || !strings.Contains(err.Error(), folder) || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("error %v", err)
	}
}

func TestContexts(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	file := writeKubeconfig(t, filepath.Join(t.TempDir(), "named"), "b", "b", "a")
	if got := strings.Join(hubapi.Target{Kubeconfig: file, Context: "typed so far"}.Contexts(), " "); got != "a b" {
		t.Errorf("contexts %q", got)
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	playground := writeKubeconfig(t, filepath.Join(dir, "playground"), "hub", "hub", "cluster1")
	writeKubeconfig(t, filepath.Join(dir, ".kube", "config"), "prod", "prod", "hub")
	if got := strings.Join(hubapi.Target{Playground: playground}.Contexts(), " "); got != "cluster1 hub prod" {
		t.Errorf("contexts %q of the playground and the user", got)
	}
}

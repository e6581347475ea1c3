package ocmconfig

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func load(t *testing.T, content string, inCluster bool) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(Options{Dir: dir, Explicit: true, InCluster: inCluster})
}

func defaults() *Config {
	c := &Config{DataDirectory: "/.ocm"}
	c.APIServer.Port = 9443
	c.Etcd.Mode, c.Etcd.Prefix = EtcdEmbed, "/registry"
	c.Aggregator.RequestheaderUsernameHeaders = []string{"X-Remote-User"}
	c.Aggregator.RequestheaderGroupHeaders = []string{"X-Remote-Group"}
	c.Aggregator.RequestheaderExtraHeadersPrefix = []string{"X-Remote-Extra-"}
	return c
}

// SC-03: what holds without a file, and without a word in it.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"empty": "", "comment": "# nothing\n", "empty sections": "apiserver:\netcd:\naggregator:\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := load(t, content, false)
			if err != nil {
				t.Fatal(err)
			}
			got.File = ""
			if !reflect.DeepEqual(got, defaults()) {
				t.Errorf("got %+v, want %+v", got, defaults())
			}
		})
	}
	for name, o := range map[string]Options{
		"no file in the folder": {Dir: t.TempDir(), Explicit: true},
		"no folder, none named": {Dir: filepath.Join(t.TempDir(), "none")},
	} {
		got, err := Load(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := filepath.Join(o.Dir, FileName); got.File != want {
			t.Errorf("%s: file %q, want %q", name, got.File, want)
		}
		if !got.NotFound {
			t.Errorf("%s: it does not say that there is no file", name)
		}
		got.File, got.NotFound = "", false
		if !reflect.DeepEqual(got, defaults()) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := Load(Options{Dir: missing, Explicit: true}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a named folder that does not exist: %v", err)
	}
}

// SC-03: in a folder that is named, a configuration under another name is a mistake.
func TestOtherFiles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files   []string
		unnamed bool
		refused string
	}{
		"another extension": {files: []string{"ocmconfig.yml"}, refused: "there is no ocmconfig.yaml, only ocmconfig.yml;"},
		"other names":       {files: []string{"config.yaml", "hub.yml"}, refused: "there is no ocmconfig.yaml, only config.yaml, hub.yml;"},
		"beside the file":   {files: []string{"audit.yaml", FileName}},
		"no configuration":  {files: []string{"ca.crt"}},
		"default folder":    {files: []string{"config.yaml"}, unnamed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, file := range test.files {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Load(Options{Dir: dir, Explicit: !test.unnamed})
			if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("error %v, want %q", err, test.refused)
			}
		})
	}
}

// SC-03: every field of the configuration arrives.
func TestEveryField(t *testing.T) {
	t.Parallel()
	pem := filepath.Join(t.TempDir(), "some.pem")
	if err := os.WriteFile(pem, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := load(t, strings.ReplaceAll(`
dataDirectory: /data
apiserver: {externalHostname: hub.example.com, port: 8443, caFile: PEM, caKeyFile: PEM}
etcd:
  mode: external
  servers:
  - https://etcd-0:2379
  - https://etcd-1:2379
  caFile: PEM
  certFile: PEM
  keyFile: PEM
  prefix: /plane-1
aggregator:
  proxyClientCertFile: PEM
  proxyClientKeyFile: PEM
  requestheaderClientCAFile: PEM
  requestheaderUsernameHeaders: [X-User]
  requestheaderGroupHeaders: [X-Group]
  requestheaderExtraHeadersPrefix: [X-Extra-]
  requestheaderAllowedNames: [front-proxy-client]
  serviceAddresses: {default/metrics: "10.1.2.3:443"}
`, "PEM", pem), false)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		File:          got.File,
		DataDirectory: "/data",
		APIServer:     APIServer{ExternalHostname: "hub.example.com", Port: 8443, CAFile: pem, CAKeyFile: pem},
		Etcd: Etcd{Mode: EtcdExternal, Servers: []string{"https://etcd-0:2379", "https://etcd-1:2379"},
			CAFile: pem, CertFile: pem, KeyFile: pem, Prefix: "/plane-1"},
		Aggregator: Aggregator{ProxyClientCertFile: pem, ProxyClientKeyFile: pem, RequestheaderClientCAFile: pem,
			RequestheaderUsernameHeaders: []string{"X-User"}, RequestheaderGroupHeaders: []string{"X-Group"},
			RequestheaderExtraHeadersPrefix: []string{"X-Extra-"}, RequestheaderAllowedNames: []string{"front-proxy-client"},
			ServiceAddresses: map[string]string{"default/metrics": "10.1.2.3:443"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// SC-03: a mistake is refused with line, field and what would be right.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content string
		want    []string
	}{
		"unknown field": {"dataDirectory: /d\napiserver:\n  prot: 1\n",
			[]string{":3: apiserver.prot: unknown field", "externalHostname, port, caFile, caKeyFile"}},
		"unknown section": {"server: {}\n", []string{":1: server: unknown field", "dataDirectory, apiserver, etcd, aggregator"}},
		"other case":      {"DataDirectory: /d\n", []string{":1: DataDirectory: unknown field"}},
		"no number":       {"apiserver:\n  port: high\n", []string{":2: apiserver.port: \"high\" is no whole number"}},
		"quoted number":   {"apiserver:\n  port: \"9443\"\n", []string{":2: apiserver.port"}},
		"no port":         {"apiserver:\n  port: 70000\n", []string{":2: apiserver.port: 70000 is no port; use 1 to 65535"}},
		"port 0":          {"apiserver:\n  port: 0\n", []string{":2: apiserver.port: 0 is no port"}},
		"no section":      {"etcd: embed\n", []string{":1: etcd: must be a section with the fields mode"}},
		"no list": {"etcd: {mode: external, servers: {a: b}}\n",
			[]string{":1: etcd.servers: a list or section is no list of strings"}},
		"twice":   {"dataDirectory: /a\ndataDirectory: /b\n", []string{":2: dataDirectory: already given in line 1"}},
		"no YAML": {"apiserver: [\n", []string{"is not YAML", "line 1"}},
		"a list":  {"- a\n", []string{":1: must be a section"}},
		"URL for a host": {"apiserver:\n  externalHostname: https://hub:6443\n",
			[]string{":2: apiserver.externalHostname", "without https://"}},
		"empty data directory":  {"dataDirectory: \"\"\n", []string{":1: dataDirectory: must name a folder"}},
		"unknown mode":          {"etcd:\n  mode: embeded\n", []string{":2: etcd.mode: \"embeded\" is unknown; use embed or external"}},
		"servers when embedded": {"etcd:\n  servers: [http://a:1]\n", []string{":2: etcd.servers: is for etcd.mode external"}},
		"no servers":            {"etcd:\n  mode: external\n  servers: []\n", []string{":3: etcd.servers: must name at least one"}},
		"bare server":           {"etcd:\n  mode: external\n  servers: [etcd]\n", []string{":3: etcd.servers: \"etcd\" is no etcd server"}},
		"TLS files without TLS": {"etcd:\n  mode: external\n  caFile: /dev/null\n  servers: [http://a:1]\n",
			[]string{":4: etcd.servers", "use https://"}},
		"relative prefix":      {"etcd: {prefix: registry}\n", []string{":1: etcd.prefix"}},
		"prefix ends in slash": {"etcd: {prefix: /a/}\n", []string{":1: etcd.prefix"}},
		"CA without key": {"apiserver:\n  caFile: /dev/null\n",
			[]string{"apiserver.caKeyFile: is missing; it is needed with apiserver.caFile"}},
		"missing file": {"apiserver:\n  caFile: /dev/null\n  caKeyFile: /no/such/file\n",
			[]string{":3: apiserver.caKeyFile: cannot be read", "/no/such/file"}},
		// "aggregator names required where request headers are accepted"
		"CA without names": {"aggregator: {proxyClientCertFile: /dev/null, proxyClientKeyFile: /dev/null, requestheaderClientCAFile: /dev/null}\n",
			[]string{"aggregator.requestheaderAllowedNames: is missing"}},
		"empty name": {"aggregator:\n  requestheaderAllowedNames: [\"\"]\n", []string{":2: aggregator.requestheaderAllowedNames"}},
		"proxy without CA": {"aggregator: {proxyClientCertFile: /dev/null, proxyClientKeyFile: /dev/null}\n",
			[]string{"aggregator.requestheaderClientCAFile: is missing"}},
		"no header": {"aggregator:\n  requestheaderUsernameHeaders: [\"a b\"]\n",
			[]string{":2: aggregator.requestheaderUsernameHeaders"}},
		"no service":             {"aggregator: {serviceAddresses: {metrics: \"a:1\"}}\n", []string{"must be NAMESPACE/NAME"}},
		"no address":             {"aggregator: {serviceAddresses: {a/b: host}}\n", []string{"must be HOST:PORT"}},
		"several, in file order": {"apiserver:\n  port: 0\netcd:\n  mode: x\n", []string{":2: apiserver.port", "\n", ":4: etcd.mode"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, c.content, false)
			if err == nil {
				t.Fatal("accepted")
			}
			rest := err.Error()
			for _, want := range c.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("error %q does not say %q", err, want)
				}
				rest = after
			}
			if !strings.Contains(err.Error(), FileName) {
				t.Errorf("error %q does not name the file", err)
			}
		})
	}
}

// SC-04: in a cluster the port is the external one, and 0 means that URLs have none.
func TestPortInCluster(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]int{"": 0, "apiserver: {port: 0}": 0, "apiserver: {port: 443}": 443} {
		got, err := load(t, content, true)
		if err != nil {
			t.Fatal(err)
		}
		if got.APIServer.Port != want {
			t.Errorf("%q: port %d, want %d", content, got.APIServer.Port, want)
		}
	}
}

// Whatever stands in the file, reading it neither crashes nor yields a configuration that a second look would refuse.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "apiserver: {port: 1}", "a: &x [*x]", "etcd: {mode: external}", "? {a: b} : c",
		"apiserver: &a {port: 2}\netcd: *a"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		config, err := parse("f", content, false)
		if err == nil && (config.DataDirectory == "" || config.APIServer.Port < 1) {
			t.Errorf("accepted %q as %+v", content, config)
		}
	})
}

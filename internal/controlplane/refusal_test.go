package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/controlplane/etcd"
	"github.com/capstan-io/capstan/internal/controlplane/etcdkeys"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

// refusal is the error of a hub that must not start.
func refusal(t *testing.T, dir string, change func(*Options)) error {
	t.Helper()
	_, err := writeConfig(dir)
	must(t, err)
	options, err := testOptions(dir)
	if err != nil {
		return err
	}
	options.Etcd.NoFsync = true
	if change != nil {
		change(options)
	}
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	err = Run(ctx, options)
	if err == nil {
		t.Fatal("the hub started")
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
	return err
}

func says(t *testing.T, err error, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

// A second hub on the same data is refused, with who has it.
func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte("dataDirectory: "+shared.options.Config.DataDirectory+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	says(t, refusal(t, dir, nil), shared.options.Config.DataDirectory, "in use by process "+strconv.Itoa(os.Getpid()))
}

// SC-02: a flag that cannot be what it is is named, with what would be right.
func TestWrongFlags(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--embedded-etcd-client-port=70000":          "use 1 to 65535",
		"--embedded-etcd-peer-port=-1":               "use 1 to 65535",
		"--embedded-etcd-wal-size-bytes=-5":          "number of bytes",
		"--embedded-etcd-quota-bytes=-5":             "number of bytes",
		"--tls-min-version=1.2":                      "VersionTLS12",
		"--tls-cipher-suites=FOO":                    "TLS_AES_128_GCM_SHA256",
		"--oidc-issuer-url=https://issuer.test":      "oidc-client-id",
		"--bind-address=192.0.2.1":                   "--bind-address",
		"--encryption-provider-config=/no/such/file": "/no/such/file",
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			err := refusal(t, t.TempDir(), func(o *Options) {
				flags := pflag.NewFlagSet("", pflag.ContinueOnError)
				o.AddFlags(flags)
				must(t, flags.Parse([]string{flag}))
			})
			says(t, err, want)
		})
	}
}

// SC-02: what ocmconfig.yaml or the hub itself decides is no flag.
func TestNoFlagWithoutEffect(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	NewOptions().AddFlags(flags)
	for name := range notOurs {
		if flags.Lookup(name) != nil {
			t.Errorf("--%s is a flag", name)
		}
	}
	for _, name := range []string{
		"delegating-authentication", "bind-address", "tls-min-version", "encryption-provider-config", "etcd-compaction-interval",
		"embedded-etcd-directory", "embedded-etcd-peer-port", "embedded-etcd-client-port", "embedded-etcd-wal-size-bytes",
		"embedded-etcd-quota-bytes",
	} {
		if flags.Lookup(name) == nil {
			t.Errorf("--%s is no flag", name)
		}
	}
}

// SC-10: a port of the embedded etcd that is taken is named with the flag that chooses it.
func TestBusyEtcdPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	says(t, refusal(t, t.TempDir(), func(o *Options) { o.Etcd.ClientPort = port }), strconv.Itoa(port), "--embedded-etcd-client-port")
}

// SC-10: a hub that has had a storage refuses to start without it, until its disk is there again.
func TestStorageIsMissing(t *testing.T) {
	t.Parallel()
	dir, disk := t.TempDir(), t.TempDir()
	onDisk := func(o *Options) { o.Etcd.Directory = disk }
	must(t, newHub(t, dir, onDisk).stop())
	data, member := filepath.Join(dir, "data"), etcd.MemberDir(disk)
	says(t, refusal(t, dir, nil), etcd.MemberDir(EtcdDirectory(data, "")), "--embedded-etcd-directory", certDir(data))
	must(t, os.Rename(member, member+"-unmounted"))
	says(t, refusal(t, dir, onDisk), member, "mount its disk")
	if _, err := os.Stat(member); err == nil {
		t.Error("there is a new storage")
	}
	must(t, os.Rename(member+"-unmounted", member))
	newHub(t, dir, onDisk)
}

// SC-06: a hub that has had keys refuses to start without them, until they are there again, or it is to make new ones.
func TestKeysAreMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, newHub(t, dir, nil).stop())
	data := filepath.Join(dir, "data")
	keys, mark := certDir(data), newKeysFile(data)
	must(t, os.Rename(keys, keys+"-unmounted"))
	for range 2 { // a hub that refuses makes no keys
		says(t, refusal(t, dir, nil), etcd.MemberDir(EtcdDirectory(data, "")), keys, mark, filepath.Join(dir, ocmconfig.FileName))
	}
	must(t, os.Rename(keys+"-unmounted", keys))
	must(t, newHub(t, dir, nil).stop())
	must(t, os.RemoveAll(keys))
	must(t, os.WriteFile(mark, nil, 0o600))
	must(t, newHub(t, dir, nil).stop())
	must(t, os.RemoveAll(keys))
	says(t, refusal(t, dir, nil), mark) // the file is for one start
}

// A hub makes keys if its storage has no objects, as after a first start that was killed, or if it is to make new ones.
func TestFindKeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		objects string
		file    string
		refuses string
	}{
		"killed when there was a database": {},
		"a hub":                            {objects: "/registry", file: "cert/client-ca.key"},
		"a hub with one file of a key":     {objects: "/registry", file: "cert/kube-serviceaccount.crt"},
		"a hub without its keys":           {objects: "/registry", file: "cert/ca-bundle/root-ca-bundle.crt", refuses: "none of its keys"},
		"a hub that is to have new keys":   {objects: "/registry", file: "new-keys"},
		"another prefix":                   {objects: "/registry/prod", refuses: "etcd.prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := NewOptions()
			o.Config = &ocmconfig.Config{DataDirectory: t.TempDir(), Etcd: ocmconfig.Etcd{Prefix: "/registry"}}
			o.Etcd.NoFsync = true
			server, err := etcd.Start(t.Context(), o.etcdOptions(t.Context()))
			must(t, err)
			if test.objects != "" {
				_, err = server.Client().Put(t.Context(), test.objects+everyHubHas, "")
			}
			server.Close()
			must(t, err)
			if test.file != "" {
				path := filepath.Join(o.Config.DataDirectory, test.file)
				must(t, os.MkdirAll(filepath.Dir(path), 0o700))
				must(t, os.WriteFile(path, nil, 0o600))
			}
			switch err := o.findKeys(t.Context()); {
			case test.refuses == "":
				must(t, err)
			case err == nil:
				t.Error("it goes on")
			default:
				says(t, err, test.refuses)
			}
		})
	}
}

// SC-06 SC-11: a hub on an external etcd makes keys if that has no objects of it, or if it is to make new ones, and starts without objects
// if it has not run before. Others may have objects there.
func TestFindShared(t *testing.T) {
	t.Parallel()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true, Logger: logr.Discard()})
	must(t, err)
	t.Cleanup(server.Close)
	client := server.Client()
	const key, kubeconfig = "cert/client-ca.key", "cert/" + adminKubeconfig
	for name, test := range map[string]struct {
		stored, files []string
		refuses       string
	}{
		"the first start":                   {},
		"one of several hubs":               {stored: []string{"/keys", everyHubHas}},
		"one of several hubs that has run":  {stored: []string{"/keys", everyHubHas}, files: []string{key, kubeconfig}},
		"a hub that moves to this etcd":     {stored: []string{everyHubHas}, files: []string{key, kubeconfig}},
		"a hub without its keys":            {stored: []string{everyHubHas}, refuses: "has its keys"},
		"a hub that is to have new keys":    {stored: []string{everyHubHas}, files: []string{"new-keys"}},
		"a first start that was cut short":  {stored: []string{"/keys"}},
		"the same, with a kubeconfig":       {stored: []string{"/keys"}, files: []string{key, kubeconfig}},
		"keys that were moved here":         {files: []string{key}},
		"another etcd, or another prefix":   {files: []string{key, kubeconfig}, refuses: "has nothing of it"},
		"the same, and new keys are wanted": {files: []string{"new-keys", kubeconfig}, refuses: "has nothing of it"},
	} {
		o := NewOptions()
		o.Config = &ocmconfig.Config{DataDirectory: t.TempDir(), File: "hub.yaml",
			Etcd: ocmconfig.Etcd{Prefix: "/" + strings.ReplaceAll(name, " ", "-")}}
		keys := etcdkeys.New(client, o.Config.Etcd.Prefix, etcdkeys.Encryption{})
		for _, key := range test.stored {
			if key == "/keys" {
				_, _, err = keys.Replace(t.Context(), []byte("keys"), pki.Version{})
			} else {
				_, err = client.Put(t.Context(), o.Config.Etcd.Prefix+key, "")
			}
			must(t, err)
		}
		for _, file := range test.files {
			path := filepath.Join(o.Config.DataDirectory, file)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must(t, os.WriteFile(path, nil, 0o600))
		}
		switch err := o.findShared(t.Context(), client, keys); {
		case test.refuses == "":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil:
			t.Errorf("%s: it goes on", name)
		default:
			says(t, err, test.refuses, o.Config.Etcd.Prefix, certDir(o.Config.DataDirectory), "hub.yaml")
		}
	}
}

// SC-11: a hub whose prefix is another than it was refuses to start, as it would without its objects.
func TestPrefixIsAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, newHub(t, dir, func(o *Options) { o.Config.Etcd.Prefix = "/registry/prod" }).stop())
	for _, prefix := range []string{"/other", "/registry", "/registry/prod/more"} {
		err := refusal(t, dir, func(o *Options) { o.Config.Etcd.Prefix = prefix })
		says(t, err, "etcd.prefix in "+filepath.Join(dir, ocmconfig.FileName)+" is "+prefix, "set etcd.prefix to /registry/prod,")
	}
}

// A hub starts without a storage if it has had none: at its first start, also after one that was killed.
func TestFindMember(t *testing.T) {
	t.Parallel()
	const kubeconfig, key, database = "cert/" + adminKubeconfig, "cert/root-ca.key", "etcd/member-data/member/snap/db"
	for name, test := range map[string]struct {
		files   []string
		folder  string
		refuses bool
	}{
		"the first start":                  {},
		"killed when there were keys":      {files: []string{key}},
		"killed when there was a database": {files: []string{key, database}},
		"a hub":                            {files: []string{key, database, kubeconfig}},
		"a hub without its database":       {files: []string{key, kubeconfig}, refuses: true},
		"a folder that is empty":           {files: []string{key, kubeconfig}, folder: "etcd/member-data", refuses: true},
	} {
		data := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(data, test.folder), 0o700))
		for _, file := range test.files {
			path := filepath.Join(data, file)
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must(t, os.WriteFile(path, nil, 0o600))
		}
		o := &Options{Config: &ocmconfig.Config{DataDirectory: data}}
		if err := o.findMember(EtcdDirectory(data, "")); (err != nil) != test.refuses {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SC-06: a key that cannot be read is named, and nothing is put in its place.
func TestBrokenKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, newHub(t, dir, nil).stop())
	file := filepath.Join(dir, "data", "cert", "client-ca.key")
	must(t, os.WriteFile(file, []byte("broken"), 0o600))
	says(t, refusal(t, dir, nil), file, "from a backup")
	if content, err := os.ReadFile(file); err != nil || string(content) != "broken" {
		t.Errorf("the broken key is now %q, %v", content, err)
	}
}

// A data directory that cannot be one is refused.
func TestUnusableDataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o600))
	says(t, refusal(t, dir, nil), filepath.Join(dir, "data"), "data directory", "must be a folder")
}

// SC-04: a port that is taken is named, with the field that chooses it.
func TestBusyPort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port, err := writeConfig(dir)
	must(t, err)
	l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port))
	must(t, err)
	defer func() { _ = l.Close() }()
	says(t, refusal(t, dir, nil), strconv.Itoa(port), "apiserver.port", filepath.Join(dir, ocmconfig.FileName))
}

// SC-03: an external etcd that does not answer is reported by name, before anything waits for it.
func TestUnreachableEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := fmt.Sprintf("http://127.0.0.1:%d", mustPort(t))
	config := fmt.Sprintf("dataDirectory: %s/data\napiserver: {port: %d}\netcd: {mode: external, servers: [%q]}\n", dir, mustPort(t), server)
	must(t, os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte(config), 0o600))
	says(t, refusal(t, dir, nil), server, "etcd.servers", "connection refused")
}

// A server that takes connections and says nothing is no etcd.
func TestSilentEtcd(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	server := "http://" + l.Addr().String()
	config := fmt.Sprintf("dataDirectory: %s/data\napiserver: {port: %d}\netcd: {mode: external, servers: [%q]}\n", dir, mustPort(t), server)
	must(t, os.WriteFile(filepath.Join(dir, ocmconfig.FileName), []byte(config), 0o600))
	says(t, refusal(t, dir, nil), server, "etcd.servers")
}

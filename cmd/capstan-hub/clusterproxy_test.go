package main

import (
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/reach/aggregated"
)

// CP-08: the list of exposed services is a ConfigMap with a namespace, or none.
func TestExposedServicesFlag(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"": "/", "hub/list": "hub/list"} {
		o, err := (&clusterProxyFlags{exposed: value}).options()
		if err != nil || o.ExposedServices.String() != want {
			t.Errorf("%q is %q, %v", value, o.ExposedServices, err)
		}
	}
	for _, value := range []string{"list", "/list", "hub/", "Hub/list", "hub/a/b"} {
		if _, err := (&clusterProxyFlags{exposed: value}).options(); err == nil || !strings.Contains(err.Error(), "write it as NAMESPACE/NAME") {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// CP-11 HC-08: the API servers of clusters are reached unless a flag says no, which makes no sense where clients are told how to.
func TestKubeAPIProxyFlag(t *testing.T) {
	t.Parallel()
	if flag := newClusterProxyCommand().Flags().Lookup("enable-kube-api-proxy"); flag == nil || flag.DefValue != "true" {
		t.Errorf("the flag is %+v", flag)
	}
	gates := []featuregate.Feature{featuregates.GitOpsCluster}
	for _, on := range []bool{true, false} {
		flags := &clusterProxyFlags{kubeAPI: on}
		if o, err := flags.options(); err != nil || o.ServicesOnly == on {
			t.Errorf("%t: %+v, %v", on, o, err)
		}
		if err := flags.checkKubeAPI(nil); err != nil {
			t.Errorf("%t without a gate: %v", on, err)
		}
		const says = "with --feature-gates=GitOpsCluster=true"
		if err := flags.checkKubeAPI(gates); (err == nil) != on || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%t with a gate: %v", on, err)
		}
	}
}

// CP-07 CP-11 CP-12: flags for the user server that make no sense are refused, with what would.
func TestUserServerFlags(t *testing.T) {
	t.Parallel()
	const profiles = featuregates.ClusterProfile
	for want, test := range map[string]struct {
		flags    userServerFlags
		certFile string
		gate     featuregate.Feature
	}{
		"":                                              {flags: userServerFlags{port: 9092, hosts: []string{"proxy.example.com", "*.example.com", "192.0.2.1", "a"}}},
		"use one from 1 to 65535":                       {flags: userServerFlags{port: 65536}},
		"is that of --secure-port":                      {flags: userServerFlags{port: aggregated.DefaultPort}},
		"which is 0: set that, too":                     {flags: userServerFlags{hosts: []string{"a"}}},
		"valid for its own names":                       {flags: userServerFlags{port: 9092, hosts: []string{"a"}}, certFile: "tls.crt"},
		"-issuers is for":                               {flags: userServerFlags{issuers: []string{"https://a"}}},
		`"http://a" is no issuer`:                       {flags: userServerFlags{port: 9092, issuers: []string{"https://a", "http://a"}}},
		`"https://a/" is neither`:                       {flags: userServerFlags{port: 9092, hosts: []string{"https://a/"}}},
		`"proxy:9092" is neither a n`:                   {flags: userServerFlags{port: 9092, hosts: []string{"proxy:9092"}}},
		"set --user-server-port and --user-server-url":  {flags: userServerFlags{port: 9092}, gate: profiles},
		"ClusterProfile=true: clusters are reached":     {flags: userServerFlags{url: "https://a:9092"}, gate: profiles},
		"GitOpsCluster=true: clusters are reached":      {flags: userServerFlags{port: 9092}, gate: featuregates.GitOpsCluster},
		"is for ClusterProfiles":                        {flags: userServerFlags{port: 9092, url: "https://a:9092"}},
		`"a:9092" is no URL of a server`:                {flags: userServerFlags{port: 9092, url: "a:9092"}, gate: profiles},
		`"https://a:9092/b" is no URL of a server`:      {flags: userServerFlags{port: 9092, url: "https://a:9092/b"}, gate: profiles},
		`not valid for b: add it to --user-server-host`: {flags: userServerFlags{port: 9092, url: "https://b:1", hosts: []string{"a"}}, gate: profiles},
	} {
		options := aggregated.NewOptions()
		options.SecureServing.ServerCert.CertKey.CertFile = test.certFile
		var access []featuregate.Feature
		if test.gate != "" {
			access = append(access, test.gate)
		}
		err := test.flags.validate(&options, access)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", test.flags, err)
		}
	}
}

// CP-07 CP-12: the URL of the user server is one that its certificate is valid for, as clients verify that.
func TestUserServerURL(t *testing.T) {
	t.Parallel()
	hosts := []string{"proxy.example.com", "*.apps.example.com", "192.0.2.1", "2001:db8::1"}
	for name, test := range map[string]struct {
		url, certFile string
		hosts         []string
		valid         bool
	}{
		"a name":                    {url: "https://proxy.example.com:9092", hosts: hosts, valid: true},
		"a name in capitals":        {url: "https://Proxy.Example.com", hosts: hosts, valid: true},
		"another name":              {url: "https://other.example.com:9092", hosts: hosts},
		"a name of the wildcard":    {url: "https://a.apps.example.com:9092", hosts: hosts, valid: true},
		"below that":                {url: "https://a.b.apps.example.com:9092", hosts: hosts},
		"the domain":                {url: "https://apps.example.com:9092", hosts: hosts},
		"the end of it":             {url: "https://myapps.example.com:9092", hosts: hosts},
		"an address":                {url: "https://192.0.2.1:9092", hosts: hosts, valid: true},
		"another address":           {url: "https://192.0.2.2:9092", hosts: hosts},
		"an address of IPv6":        {url: "https://[2001:db8:0::1]:9092", hosts: hosts, valid: true},
		"no host":                   {url: "https://proxy.example.com:9092"},
		"the Service":               {url: "https://cluster-proxy.example.svc:9092", valid: true},
		"a certificate from a file": {url: "https://proxy.example.com:9092", certFile: "tls.crt", valid: true},
	} {
		options := aggregated.NewOptions()
		options.SecureServing.ServerCert.CertKey.CertFile = test.certFile
		flags := userServerFlags{port: 9092, hosts: test.hosts, url: test.url}
		err := flags.validate(&options, []featuregate.Feature{featuregates.ClusterProfile})
		if (err == nil) != test.valid || err != nil && !strings.Contains(err.Error(), "add it to --user-server-hosts") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

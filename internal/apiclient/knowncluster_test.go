package apiclient

import (
	"slices"
	"testing"

	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// CA-17: by a key that vouches for both, a hub is known again at another address. The authority of a proxy vouches for no hub.
func TestSharesCA(t *testing.T) {
	t.Parallel()
	one, other := authority(t, "one"), authority(t, "other")
	proxys := forwardproxy.ForProxy(other)
	for name, test := range map[string]struct {
		a, b   []byte
		shares bool
	}{
		"the same": {one, one, true}, "one of two": {slices.Concat(other, one), one, true}, "others": {one, other, false},
		"none": {nil, nil, false}, "none, and one": {nil, one, false}, "broken": {[]byte("x"), []byte("x"), false},
		"of a proxy": {slices.Concat(one, proxys), slices.Concat(other, proxys), false},
	} {
		if got := (KnownCluster{CA: test.a}).SharesCA(KnownCluster{CA: test.b}); got != test.shares {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// CA-17: what a kubeconfig leads to, without a look at the files that it names, which are those of another machine.
func TestClusterIn(t *testing.T) {
	t.Parallel()
	const contexts = "\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: b}}]\n"
	for kubeconfig, want := range map[string]string{
		"": "", "no: [kubeconfig": "", contexts: "", "current-context: gone": "",
		contexts + "clusters: [{name: c, cluster: {server: 'https://c'}}]":                                   "",
		contexts + "clusters: [{name: b, cluster: {server: 'https://b', certificate-authority-data: eA==}}]": "https://b x",
		contexts + "clusters: [{name: b, cluster: {server: 'https://b', certificate-authority: /gone}}]":     "https://b ",
	} {
		known, found := ClusterIn([]byte(kubeconfig))
		if got := known.Server + " " + string(known.CA); found != (want != "") || found && got != want {
			t.Errorf("%q leads to %q, %t", kubeconfig, got, found)
		}
	}
}

// authority is a certificate authority of its own, in PEM.
func authority(t *testing.T, name string) []byte {
	t.Helper()
	certificate, _, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

package reach_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// setExecInfo is what client-go tells a credential plugin about the server.
func setExecInfo(t *testing.T, server clientauthenticationv1.Cluster) {
	t.Helper()
	request := clientauthenticationv1.ExecCredential{Spec: clientauthenticationv1.ExecCredentialSpec{Cluster: &server}}
	request.APIVersion, request.Kind = "client.authentication.k8s.io/v1", "ExecCredential"
	encoded, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_EXEC_INFO", string(encoded))
}

// kubeconfigOf is a kubeconfig that leads to the hub as another user.
func kubeconfigOf(t *testing.T, h clitest.Hub, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(h.File)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] = user
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// NX-03: without an account, the plugin hands over what the user of the hub has for the hub, however the kubeconfig has that.
func TestOwnCredential(t *testing.T) {
	h := clitest.NewHub(t)
	setExecInfo(t, clientauthenticationv1.Cluster{Server: h.URL + clitest.ClustersPath + "/cluster1/proxy", CertificateAuthorityData: h.CA()})
	chain, key, err := cert.GenerateSelfSignedCertKey("ann", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("of-a-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	plugin := func(status clientauthenticationv1.ExecCredentialStatus) *clientcmdapi.AuthInfo {
		answer, err := json.Marshal(clientauthenticationv1.ExecCredential{Status: &status})
		if err != nil {
			t.Fatal(err)
		}
		printed := strings.Replace(string(answer), "{", `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",`, 1)
		return &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "printf",
			Args: []string{"%s", printed}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
	}
	for name, test := range map[string]struct {
		user *clientcmdapi.AuthInfo
		want clientauthenticationv1.ExecCredentialStatus
	}{
		"a token":           {&clientcmdapi.AuthInfo{Token: "ann"}, clientauthenticationv1.ExecCredentialStatus{Token: "ann"}},
		"a file of a token": {&clientcmdapi.AuthInfo{TokenFile: tokenFile}, clientauthenticationv1.ExecCredentialStatus{Token: "of-a-file"}},
		"a certificate": {&clientcmdapi.AuthInfo{ClientCertificateData: chain, ClientKeyData: key},
			clientauthenticationv1.ExecCredentialStatus{ClientCertificateData: string(chain), ClientKeyData: string(key)}},
		"a plugin with a token": {plugin(clientauthenticationv1.ExecCredentialStatus{Token: "of-a-plugin"}),
			clientauthenticationv1.ExecCredentialStatus{Token: "of-a-plugin"}},
		"a plugin with a certificate": {plugin(clientauthenticationv1.ExecCredentialStatus{ClientCertificateData: string(chain),
			ClientKeyData: string(key)}), clientauthenticationv1.ExecCredentialStatus{ClientCertificateData: string(chain)}},
	} {
		got := h.Run(t, "", "credentials", "--kubeconfig", kubeconfigOf(t, h, test.user))
		printed := clientauthenticationv1.ExecCredential{}
		if err := json.Unmarshal([]byte(got.Out), &printed); err != nil || got.Code != 0 || printed.Status == nil {
			t.Errorf("%s: %v: %+v", name, err, got)
			continue
		}
		status := *printed.Status
		if status.Token != test.want.Token || status.ClientCertificateData != test.want.ClientCertificateData ||
			test.want.ClientKeyData != "" && status.ClientKeyData != test.want.ClientKeyData {
			t.Errorf("%s: %+v, want %+v", name, status, test.want)
		}
		if certified := status.ClientCertificateData != ""; certified != (status.ExpirationTimestamp != nil) ||
			certified != strings.Contains(status.ClientKeyData, "PRIVATE KEY") {
			t.Errorf("%s: it ends at %v, with the key %q", name, status.ExpirationTimestamp, status.ClientKeyData)
		}
	}
	for name, user := range map[string]*clientcmdapi.AuthInfo{
		"neither a token nor a certificate": {Username: "ann", Password: "secret"},
		"acts for another user":             {Token: "ann", Impersonate: "ben"},
	} {
		h.Run(t, "", "credentials", "--kubeconfig", kubeconfigOf(t, h, user)).Fails(t, name)
	}
}

// NX-03: a ClusterProfile that leads elsewhere gets no credential for the hub.
func TestOwnCredentialIsForTheHub(t *testing.T) {
	h := clitest.NewHub(t)
	other, _, err := cert.GenerateSelfSignedCertKey("elsewhere", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := h.URL + clitest.ClustersPath + "/cluster1/proxy"
	for says, elsewhere := range map[string]clientauthenticationv1.Cluster{
		"https://192.0.2.1/proxy is not that of the hub": {Server: "https://192.0.2.1/proxy", CertificateAuthorityData: h.CA()},
		"is not to be verified in the way":               {Server: server, InsecureSkipTLSVerify: true},
		"not to be verified in the way in which":         {Server: server, CertificateAuthorityData: h.CA(), TLSServerName: "elsewhere"},
		"is none of those of the hub":                    {Server: server, CertificateAuthorityData: other},
		"none of those of the hub in the kubeconfig":     {Server: server, CertificateAuthorityData: append(h.CA(), other...)},
		"is without the certificate authority":           {Server: server},
		"must be a URL or a host:port pair":              {Server: strings.TrimPrefix(server, "https://")},
		"is not that of the hub, https://":               {Server: strings.TrimPrefix(h.URL, "https://")}, // by HTTP
	} {
		setExecInfo(t, elsewhere)
		got := h.Run(t, "", "credentials")
		got.Fails(t, says, "--managed-serviceaccount")
		if strings.Contains(got.Out+got.ErrOut, "admin") {
			t.Errorf("it hands over the token: %+v", got)
		}
	}
}

// NX-03: where the kubeconfig has nothing verified, a proxy of a ClusterProfile gets no credential.
func TestOwnCredentialThroughProxy(t *testing.T) {
	h := clitest.NewHub(t)
	config, err := clientcmd.LoadFromFile(h.File)
	if err != nil {
		t.Fatal(err)
	}
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	cluster.InsecureSkipTLSVerify, cluster.CertificateAuthority, cluster.CertificateAuthorityData = true, "", nil
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	server := clientauthenticationv1.Cluster{Server: h.URL + clitest.ClustersPath + "/cluster1/proxy", InsecureSkipTLSVerify: true}
	setExecInfo(t, server)
	if got := h.Run(t, "", "credentials", "--kubeconfig", file); got.Code != 0 {
		t.Errorf("without a proxy: %+v", got)
	}
	server.ProxyURL = "http://192.0.2.1"
	setExecInfo(t, server)
	h.Run(t, "", "credentials", "--kubeconfig", file).Fails(t, "the proxy would get the credential")
}

// NX-03: in an existing cluster, a token or a certificate for the hub is for the user server, too: the one in the namespace and with the
// certificate that the APIService of the hub names. Nobody else gets it, whatever a ClusterProfile says.
func TestOwnCredentialForUserServer(t *testing.T) {
	h := clitest.NewHub(t)
	ca, _, err := cert.GenerateSelfSignedCertKey("cluster-proxy.hub.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := cert.GenerateSelfSignedCertKey("elsewhere", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	chain, key, err := cert.GenerateSelfSignedCertKey("ann", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	withToken := kubeconfigOf(t, h, &clientcmdapi.AuthInfo{Token: "ann"})
	withCertificate := kubeconfigOf(t, h, &clientcmdapi.AuthInfo{ClientCertificateData: chain, ClientKeyData: key})
	const apiService = "GET /apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.reach.capstan.io"
	serve := func(spec map[string]any) {
		t.Helper()
		encoded, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		h.Handle(apiService, fakehub.JSON(string(encoded)))
	}
	refuse := func(says string, server clientauthenticationv1.Cluster) {
		t.Helper()
		setExecInfo(t, server)
		for _, kubeconfig := range []string{withToken, withCertificate} {
			got := h.Run(t, "", "credentials", "--kubeconfig", kubeconfig)
			got.Fails(t, says, "--managed-serviceaccount")
			if got.Out != "" || strings.Contains(got.ErrOut, "PRIVATE KEY") {
				t.Errorf("it prints %+v", got)
			}
		}
	}
	const address = "https://cluster-proxy-addon-user.hub:9092/cluster1"
	server := clientauthenticationv1.Cluster{Server: address, CertificateAuthorityData: ca}
	refuse("the hub has no APIService v1alpha1.reach.capstan.io", server)
	serve(map[string]any{"caBundle": ca}) // of the API server itself
	refuse("the hub has no APIService v1alpha1.reach.capstan.io with spec.service and spec.caBundle", server)
	service := map[string]any{"namespace": "hub", "name": "cluster-proxy"}
	serve(map[string]any{"service": service, "insecureSkipTLSVerify": true})
	refuse("with spec.service and spec.caBundle", clientauthenticationv1.Cluster{Server: address})

	h.Handle(apiService, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no right to"))
	refuse("ClusterRole open-cluster-management:cluster-proxy:user", server)
	serve(map[string]any{"service": service, "caBundle": ca})
	for says, elsewhere := range map[string]clientauthenticationv1.Cluster{
		"is not that of the hub, https://cluster-proxy-addon-user.hub:9092": {
			Server: "https://cluster-proxy-addon-user.team-a:9092/cluster1", CertificateAuthorityData: ca},
		"https://cluster-proxy-addon-user.hub:9093 is not that of the hub": {
			Server: "https://cluster-proxy-addon-user.hub:9093", CertificateAuthorityData: ca},
		"is none of those of the hub in APIService v1alpha1.reach.capstan.io": {Server: address, CertificateAuthorityData: other},
		"in which APIService v1alpha1.reach.capstan.io verifies the hub":      {Server: address, InsecureSkipTLSVerify: true},
		"is not to be verified": {Server: address, CertificateAuthorityData: ca, TLSServerName: "elsewhere"},
		"is without the certificate authority by which APIService": {Server: address},
		"is not that of the hub, https://127.0.0.1": {
			Server: strings.Replace(address, "https", "http", 1), CertificateAuthorityData: ca},
	} {
		refuse(says, elsewhere)
	}
	setExecInfo(t, server)
	for kubeconfig, want := range map[string]clientauthenticationv1.ExecCredentialStatus{
		withToken:       {Token: "ann"},
		withCertificate: {ClientCertificateData: string(chain), ClientKeyData: string(key)},
	} {
		got := h.Run(t, "", "credentials", "--kubeconfig", kubeconfig)
		printed := clientauthenticationv1.ExecCredential{}
		if err := json.Unmarshal([]byte(got.Out), &printed); err != nil || printed.Status == nil {
			t.Errorf("for the user server it prints %+v, %v", got, err)
			continue
		}
		if status := *printed.Status; status.Token != want.Token || status.ClientCertificateData != want.ClientCertificateData ||
			status.ClientKeyData != want.ClientKeyData {
			t.Errorf("for the user server it prints %+v, want %+v", status, want)
		}
	}
}

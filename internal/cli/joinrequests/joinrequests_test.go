package joinrequests

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/url"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// CA-18, O16: accept approves the requests of agents with a bootstrap credential, and no look-alikes.
func TestJoinRequest(t *testing.T) {
	t.Parallel()
	const cluster = "cluster1"
	agent := fleet.ClusterUser(cluster, "a1")
	good := fakehub.JoinRequest(t, "csr", cluster, "a1")
	subject := pkix.Name{CommonName: agent, Organization: fleet.ClusterGroups(cluster)}
	tests := map[string]struct {
		change func(*certificatesv1.CertificateSigningRequest)
		why    string
	}{
		"service account token": {},
		"bootstrap token": {change: func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Username, c.Spec.Groups = "system:bootstrap:abc123", []string{"system:bootstrappers", fleet.GroupBootstrap}
		}},
		"gRPC server": {change: func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Username = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"
			c.Spec.Groups = []string{"system:serviceaccounts:open-cluster-management-hub"}
			c.Spec.SignerName = fleet.SignerGRPC
			c.Annotations = map[string]string{fleet.AnnotationCSRUser: "system:bootstrap:abc123"}
		}},
		"gRPC server for nobody": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Username = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"
				c.Spec.Groups = []string{"system:serviceaccounts:open-cluster-management-hub"}
			},
			why: "does not have a bootstrap credential",
		},
		"gRPC server for the agent of another cluster": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Username = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"
				c.Spec.Groups = []string{"system:serviceaccounts:open-cluster-management-hub"}
				c.Annotations = map[string]string{fleet.AnnotationCSRUser: fleet.ClusterUser("cluster2", "a1")}
			},
			why: "does not have a bootstrap credential",
		},
		"an annotation that a user has written": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Username, c.Annotations = "eve", map[string]string{fleet.AnnotationCSRUser: "system:bootstrap:abc123"}
			},
			why: "does not have a bootstrap credential",
		},
		"a service account whose name begins the same": {
			change: func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Username += "-2" },
			why:    "does not have a bootstrap credential",
		},
		"a user whose name begins like a bootstrap token's": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Username, c.Spec.Groups = "system:bootstrap:abc123:evil", []string{fleet.GroupBootstrap}
			},
			why: "does not have a bootstrap credential",
		},
		"a bootstrap token for something else": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Username, c.Spec.Groups = "system:bootstrap:abc123", []string{"system:bootstrappers:kubeadm:default-node-token"}
			},
			why: "does not have a bootstrap credential",
		},
		"the group of another requester": {
			change: func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Groups = []string{fleet.GroupBootstrap} },
			why:    "does not have a bootstrap credential",
		},
		"another signer": {
			change: func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "kubernetes.io/kubelet-serving" },
			why:    "does not sign certificates of agents",
		},
		"an add-on": {
			change: func(c *certificatesv1.CertificateSigningRequest) { c.Labels[fleet.LabelAddOnName] = "proxy" },
			why:    "add-on",
		},
		"another cluster's identity": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Request = fakehub.PEMRequest(t, fleet.ClusterUser("cluster2", "a1"))
			},
			why: `identity of cluster "cluster2"`,
		},
		"an administrator's identity": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Request = fakehub.PEMRequest(t, "admin")
			},
			why: "not the agent of a cluster",
		},
		"an administrator's group": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Request = fakehub.PEMRequest(t, agent, fleet.ClusterGroup(cluster), "system:masters")
			},
			why: `group "system:masters"`,
		},
		"no group of the cluster": {
			change: func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Request = fakehub.PEMRequest(t, agent) },
			why:    "does not ask for the group",
		},
		"a URI": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Request = fakehub.EncodeRequest(t, &x509.CertificateRequest{Subject: subject, URIs: []*url.URL{{Scheme: "spiffe", Host: "hub"}}})
			},
			why: "1 names of other kinds",
		},
		"a host": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				c.Spec.Request = fakehub.EncodeRequest(t, &x509.CertificateRequest{Subject: subject, DNSNames: []string{"hub"}})
			},
			why: "1 names of other kinds",
		},
		"the UID of another user": {
			change: func(c *certificatesv1.CertificateSigningRequest) {
				withUID := subject
				withUID.ExtraNames = []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "uid"}}
				c.Spec.Request = fakehub.EncodeRequest(t, &x509.CertificateRequest{Subject: withUID})
			},
			why: "attributes of other kinds",
		},
		"no certificate request": {
			change: func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Request = []byte("x") },
			why:    "no PEM",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			csr := good.DeepCopy()
			if test.change != nil {
				test.change(csr)
			}
			request, err := read(csr, fromGRPCServer(t.Context(), &hubapi.Hub{}, csr), cluster)
			if test.why == "" {
				if err != nil {
					t.Fatalf("rejected: %v", err)
				}
				if request.CommonName != agent || !request.Pending || request.Approved {
					t.Errorf("request %+v", request)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.why) {
				t.Errorf("error %v, want one with %q", err, test.why)
			}
		})
	}
}

// CA-18: the gRPC server of a hosted hub, which runs in a namespace of its own, makes requests for others, too; a service account of its
// name without its rights does not.
func TestRequestsOfHostedServer(t *testing.T) {
	t.Parallel()
	fake := fakehub.New(t)
	const serverRole = "open-cluster-management:blue-grpc-server"
	fake.Put(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"+serverRole, &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: serverRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: serverRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "blue", Name: "grpc-server-sa"}},
	})
	for _, namespace := range []string{"blue", "red"} {
		csr := fakehub.JoinRequest(t, namespace, "cluster1", "a1")
		csr.Spec.Username, csr.Spec.Groups = "system:serviceaccount:"+namespace+":grpc-server-sa", []string{"system:serviceaccounts:" + namespace}
		csr.Spec.SignerName, csr.Annotations = fleet.SignerGRPC, map[string]string{fleet.AnnotationCSRUser: "system:bootstrap:abc123"}
		fake.Put(t, "/apis/certificates.k8s.io/v1/certificatesigningrequests/"+namespace, csr)
	}
	requests, rejected, err := List(t.Context(), fake.Client(t), "cluster1", time.Time{})
	if err != nil || len(requests) != 1 || requests[0].Name != "blue" || len(rejected) != 1 || rejected[0].Name != "red" {
		t.Errorf("requests %+v, rejected %+v, %v", requests, rejected, err)
	}
}

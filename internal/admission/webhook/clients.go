package webhook

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/klog/v2"
)

// OfClients serves only clients with a certificate that verify accepts, and answers all others with 401: the answers of a webhook
// reveal what users may do. The connection has to have requested a certificate.
func OfClients(verify x509.VerifyOptionFunc, handler http.Handler) http.Handler {
	authenticator := x509.NewDynamic(verify, x509.CommonNameUserConversion)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, known, err := authenticator.AuthenticateRequest(r)
		if !known {
			klog.FromContext(r.Context()).Error(errors.Join(errUnknownClient, err), "A request to a webhook is refused", "path", r.URL.Path, "from",
				r.RemoteAddr)
			http.Error(w, errUnknownClient.Error(), http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

var errUnknownClient = errors.New("this webhook answers the API server alone, which shows a client certificate of an authority in --client-ca-file")

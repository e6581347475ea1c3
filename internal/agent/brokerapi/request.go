package brokerapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/capstan-io/capstan/internal/cloudevents"
)

const mediaType = "application/json"

// request is a request of a client, taken apart.
type request struct {
	*http.Request
	kind                         *kind
	namespace, name, subresource string
}

// parseRequest reads /api/VERSION and /apis/GROUP/VERSION, with the parts of one object or of a list behind them.
func parseRequest(req *http.Request) (*request, error) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	var group schema.GroupVersion
	switch {
	case parts[0] == "api" && len(parts) > 2:
		group, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		group, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return nil, notByEvents(fmt.Sprintf("path %s of the hub's API", req.URL.Path))
	}
	r := &request{Request: req}
	if parts[0] == "namespaces" && len(parts) > 2 {
		r.namespace, parts = parts[1], parts[2:]
	}
	for i := range kinds {
		if k := &kinds[i]; k.group == group && k.resource == parts[0] {
			r.kind = k
		}
	}
	if r.kind == nil {
		return nil, notByEvents(schema.GroupResource{Group: group.Group, Resource: parts[0]}.String() + " of version " + group.Version)
	}
	if len(parts) > 1 {
		r.name = parts[1]
	}
	r.subresource = strings.Join(parts[min(2, len(parts)):], "/")
	return r, nil
}

// notByEvents is an error for a resource that no event is about. It is no absence: a client must not take it for one.
func notByEvents(what string) error {
	message := what + " cannot be reached by gRPC: the broker of the hub has no events about it; connect the agent to the API server of the hub for that"
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed,
		Reason: metav1.StatusReasonMethodNotAllowed, Message: message}}
}

func (r *request) unsupported() error {
	what := strings.ToLower(r.Method) + " of " + r.groupResource().String()
	if r.subresource != "" {
		what += "/" + r.subresource
	}
	return notByEvents(what)
}

func (r *request) elsewhere(cluster string) error {
	return apierrors.NewForbidden(r.groupResource(), r.name, fmt.Errorf("namespace %q is not that of cluster %q, and the broker has events for that alone",
		r.namespace, cluster))
}

func (r *request) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.kind.group.Group, Resource: r.kind.resource}
}

// object reads the body.
func (r *request) object() (*unstructured.Unstructured, error) {
	body, err := r.body()
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(body, &o.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is no object in JSON: %v", err))
	}
	if o.Object == nil {
		return nil, apierrors.NewBadRequest("the body is empty")
	}
	return o, nil
}

func (r *request) body() ([]byte, error) {
	if r.Body == nil {
		return nil, apierrors.NewBadRequest("there is no body")
	}
	if given := r.Header.Get("Content-Type"); r.Method != http.MethodPatch && given != "" && !strings.HasPrefix(given, mediaType) {
		return nil, unsupportedMediaType(given, mediaType)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	return body, nil
}

func unsupportedMediaType(given, want string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType, Message: fmt.Sprintf("the body is %s; by gRPC it has to be %s", given, want)}}
}

// apiError is what an error is to a client of the API.
func (r *request) apiError(err error) error {
	err = cloudevents.APIError(err)
	var apiStatus apierrors.APIStatus
	if errors.As(err, &apiStatus) {
		return err
	}
	answer, ok := status.FromError(err)
	if !ok {
		return apierrors.NewInternalError(err)
	}
	switch answer.Code() {
	case codes.PermissionDenied:
		return apierrors.NewForbidden(r.groupResource(), r.name, errors.New(answer.Message()))
	case codes.Unauthenticated:
		return apierrors.NewUnauthorized(answer.Message())
	case codes.Unavailable:
		if refusesCertificate(answer.Message()) {
			return apierrors.NewUnauthorized(answer.Message())
		}
		return apierrors.NewServiceUnavailable(answer.Message())
	case codes.DeadlineExceeded:
		return apierrors.NewTimeoutError(answer.Message(), 0)
	case codes.ResourceExhausted:
		return apierrors.NewRequestEntityTooLargeError(answer.Message())
	case codes.InvalidArgument, codes.OutOfRange:
		if strings.Contains(answer.Message(), "data type") {
			return apierrors.NewNotFound(r.groupResource(), r.name) // as an API server says of a kind that it does not have
		}
		return apierrors.NewBadRequest(answer.Message())
	case codes.Unimplemented:
		return notByEvents(r.groupResource().String() + " (" + answer.Message() + ")")
	case codes.NotFound:
		return apierrors.NewNotFound(r.groupResource(), r.name)
	}
	return apierrors.NewInternalError(err)
}

// refusesCertificate reports whether a server ended the TLS handshake because of the client certificate. That is no status of gRPC.
func refusesCertificate(message string) bool {
	if !strings.Contains(message, "remote error: tls:") {
		return false
	}
	for _, alert := range []string{"bad certificate", "unknown certificate", "certificate required", "expired certificate",
		"revoked certificate", "unsupported certificate"} {
		if strings.Contains(message, alert) {
			return true
		}
	}
	return false
}

// failure answers with an error of the API.
func failure(req *http.Request, err error) *http.Response {
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) {
		apiStatus = apierrors.NewInternalError(err)
	}
	answer := apiStatus.Status()
	answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, marshalErr := json.Marshal(answer)
	if marshalErr != nil {
		body = []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure"}`)
	}
	return respond(req, int(answer.Code), body)
}

func respond(req *http.Request, code int, body []byte) *http.Response {
	return stream(req, code, io.NopCloser(bytes.NewReader(body)), int64(len(body)))
}

// stream answers with a body that is not complete yet. Its length is -1 if that is unknown.
func stream(req *http.Request, code int, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {mediaType}}, Body: body, ContentLength: length, Request: req,
	}
}

package conversion

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WH-13
func TestHandler(t *testing.T) {
	t.Parallel()
	addOn := object(t, toV1Alpha1, kindManagedClusterAddOn, `spec: {installNamespace: ns}`)
	same := object(t, toV1Beta1, kindManagedClusterAddOn, `spec: {}`)
	response := review(t, toV1Beta1, addOn, same)
	if response.Result.Status != metav1.StatusSuccess || response.UID != "review" {
		t.Fatalf("the response is %+v", response)
	}
	if got := len(response.ConvertedObjects); got != 2 {
		t.Fatalf("%d objects came back, want 2", got)
	}
	converted := new(metav1.PartialObjectMetadata)
	if err := json.Unmarshal(response.ConvertedObjects[0].Raw, converted); err != nil {
		t.Fatal(err)
	}
	if converted.APIVersion != toV1Beta1 || converted.Kind != kindManagedClusterAddOn ||
		converted.Annotations["addon.open-cluster-management.io/v1alpha1-install-namespace"] != "ns" {
		t.Errorf("the first object came back as %s", response.ConvertedObjects[0].Raw)
	}
	if got := string(response.ConvertedObjects[1].Raw); got != string(same) {
		t.Errorf("an object of the right version came back as %s, want %s", got, same)
	}
}

// WH-13
func TestHandlerFailsTheReview(t *testing.T) {
	t.Parallel()
	good := object(t, toV1Beta1, kindManagedClusterAddOn, `spec: {}`)
	bad := object(t, toV1Beta1, kindManagedClusterAddOn, `{spec: {}, status: {registrations: [{type: customSigner}]}}`)
	response := review(t, toV1Alpha1, good, bad)
	if response.Result.Status != metav1.StatusFailure || response.UID != "review" || len(response.ConvertedObjects) != 0 {
		t.Fatalf("the response is %+v", response)
	}
	if want := "ManagedClusterAddOn default/a1"; !strings.Contains(response.Result.Message, want) {
		t.Errorf("the message %q does not name %s", response.Result.Message, want)
	}
}

// "one 1.5 GB POST took the process to 6.2 GB": no more of a body is read than a review may have.
func TestHandlerBoundsTheBody(t *testing.T) {
	t.Parallel()
	const limit = 1 << 10
	reviewOf := func(size int) string {
		start, end := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"`, `"}}`
		return start + strings.Repeat("u", size-len(start)-len(end)) + end
	}
	for size, want := range map[int]int{limit: http.StatusOK, limit + 1: http.StatusRequestEntityTooLarge,
		100 * limit: http.StatusRequestEntityTooLarge} {
		body := strings.NewReader(reviewOf(size))
		answer := httptest.NewRecorder()
		handler(limit).ServeHTTP(answer, httptest.NewRequest(http.MethodPost, Path, body))
		if answer.Code != want {
			t.Errorf("%d bytes are answered with %d %s, want %d", size, answer.Code, answer.Body, want)
		}
		if read := size - body.Len(); read > limit+1 {
			t.Errorf("of %d bytes %d were read", size, read)
		}
	}
}

func review(t *testing.T, desired string, objects ...[]byte) *apiextensionsv1.ConversionResponse {
	t.Helper()
	request := &apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "ConversionReview"},
		Request:  &apiextensionsv1.ConversionRequest{UID: "review", DesiredAPIVersion: desired},
	}
	for _, object := range objects {
		request.Request.Objects = append(request.Request.Objects, runtime.RawExtension{Raw: object})
	}
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(string(body))))
	if recorder.Code != http.StatusOK {
		t.Fatalf("status %d: %s", recorder.Code, recorder.Body)
	}
	if got := recorder.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type is %q", got)
	}
	answer := new(apiextensionsv1.ConversionReview)
	if err := json.Unmarshal(recorder.Body.Bytes(), answer); err != nil {
		t.Fatal(err)
	}
	if answer.APIVersion != request.APIVersion || answer.Kind != request.Kind || answer.Request != nil || answer.Response == nil {
		t.Fatalf("the answer is no response to the review: %s", recorder.Body)
	}
	return answer.Response
}

func TestHandlerRefusesOtherRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, method, body string
		code               int
		want               string
	}{
		{"GET", http.MethodGet, "", http.StatusMethodNotAllowed, "POST a ConversionReview"},
		{"no JSON", http.MethodPost, "hello", http.StatusBadRequest, "the body is not a ConversionReview: invalid character"},
		{"empty", http.MethodPost, "", http.StatusBadRequest, "the body is not a ConversionReview: EOF"},
		{
			"an old review", http.MethodPost,
			`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","request":{"uid":"u"}}`,
			http.StatusBadRequest, `not a "ConversionReview" of "apiextensions.k8s.io/v1beta1"`,
		},
		{
			"no request", http.MethodPost, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`,
			http.StatusBadRequest, "must be a ConversionReview of apiextensions.k8s.io/v1 with a request",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			recorder := httptest.NewRecorder()
			Handler().ServeHTTP(recorder, httptest.NewRequest(test.method, Path, strings.NewReader(test.body)))
			if recorder.Code != test.code || !strings.Contains(recorder.Body.String(), test.want) {
				t.Errorf("status %d: %s\nwant %d: %s", recorder.Code, recorder.Body, test.code, test.want)
			}
		})
	}
}

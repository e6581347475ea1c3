// Package ekstoken makes tokens for the API servers of EKS clusters: signed requests to AWS STS for the identity of the caller, which EKS
// sends.
package ekstoken

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
)

// Command is the name of the agent's command that prints a token.
const Command = "eks-token"

// APIVersion is that of what it prints, which is also that of the AWS command line.
const APIVersion = "client.authentication.k8s.io/v1beta1"

// EKS takes tokens of up to 15 minutes.
const lifetime = 14 * time.Minute

const (
	service     = "sts"
	sessionName = "capstan-agent"
	// mostAnswer is more than any answer of STS has.
	mostAnswer = 1 << 20
)

// Options say for which cluster a token is, and as whom.
type Options struct {
	Cluster string
	Region  string
	// Role is the ARN of the role to get it as.
	Role string
}

// Get makes a token with what the environment says of the role of the pod.
func Get(ctx context.Context, o Options) (*clientauthenticationv1beta1.ExecCredential, error) {
	for _, required := range []struct{ flag, value string }{{"cluster-name", o.Cluster}, {"region", o.Region}, {"role-arn", o.Role}} {
		if required.value == "" {
			return nil, fmt.Errorf("--%s is empty; name one", required.flag)
		}
	}
	s := sts{region: o.Region, endpoint: endpoint(o.Region), client: &http.Client{Timeout: 30 * time.Second}}
	own, err := s.own(ctx)
	if err != nil {
		return nil, err
	}
	role, err := s.assume(ctx, own, o.Role)
	if err != nil {
		return nil, fmt.Errorf("become %s: %w", o.Role, err)
	}
	token, err := s.sign(ctx, role, o.Cluster)
	if err != nil {
		return nil, fmt.Errorf("sign the token: %w", err)
	}
	expires := metav1.NewTime(time.Now().Add(lifetime))
	return &clientauthenticationv1beta1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: "ExecCredential"},
		Status:   &clientauthenticationv1beta1.ExecCredentialStatus{ExpirationTimestamp: &expires, Token: token},
	}, nil
}

// endpoint is where STS is, which the environment may say as it does to other programs of AWS.
func endpoint(region string) string {
	for _, name := range []string{"AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"} {
		if value := os.Getenv(name); value != "" {
			return strings.TrimSuffix(value, "/")
		}
	}
	return "https://sts." + region + ".amazonaws.com"
}

// sts is AWS STS in a region.
type sts struct {
	region, endpoint string
	client           *http.Client
}

// own is the credential of the pod.
func (s sts) own(ctx context.Context) (aws.Credentials, error) {
	if id := os.Getenv("AWS_ACCESS_KEY_ID"); id != "" {
		return aws.Credentials{AccessKeyID: id, SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
			SessionToken: os.Getenv("AWS_SESSION_TOKEN")}, nil
	}
	role, file := os.Getenv("AWS_ROLE_ARN"), os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE")
	if role == "" || file == "" {
		return aws.Credentials{}, errors.New("the pod has no IAM role: AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE are not set; see whether the annotation " +
			"eks.amazonaws.com/role-arn of its service account is there since before the pod")
	}
	token, err := os.ReadFile(file)
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("read the token of the pod for AWS: %w", err)
	}
	credentials, err := s.send(ctx, nil, url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "RoleArn": {role}, "RoleSessionName": {sessionName},
		"WebIdentityToken": {strings.TrimSpace(string(token))},
	})
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("become %s, the role of the pod: %w", role, err)
	}
	return credentials, nil
}

func (s sts) assume(ctx context.Context, own aws.Credentials, role string) (aws.Credentials, error) {
	return s.send(ctx, &own, url.Values{"Action": {"AssumeRole"}, "RoleArn": {role}, "RoleSessionName": {sessionName}})
}

// answer is of AssumeRole and AssumeRoleWithWebIdentity.
type answer struct {
	Assumed     credentials `xml:"AssumeRoleResult>Credentials"`
	WebIdentity credentials `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
}

type credentials struct {
	AccessKeyID     string `xml:"AccessKeyId"`
	SecretAccessKey string `xml:"SecretAccessKey"`
	SessionToken    string `xml:"SessionToken"`
}

type refusal struct {
	Code    string `xml:"Error>Code"`
	Message string `xml:"Error>Message"`
}

// send makes a request, signed if there is something to sign it with.
func (s sts) send(ctx context.Context, as *aws.Credentials, form url.Values) (aws.Credentials, error) {
	form.Set("Version", "2011-06-15")
	body := form.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint+"/", strings.NewReader(body))
	if err != nil {
		return aws.Credentials{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if as != nil {
		if err := v4.NewSigner().SignHTTP(ctx, *as, request, hash(body), service, s.region, time.Now()); err != nil {
			return aws.Credentials{}, err
		}
	}
	response, err := s.client.Do(request)
	if err != nil {
		return aws.Credentials{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err != nil {
		return aws.Credentials{}, err
	}
	if response.StatusCode != http.StatusOK {
		var refused refusal
		if xml.Unmarshal(text, &refused) == nil && refused.Code != "" {
			return aws.Credentials{}, fmt.Errorf("AWS refuses it: %s: %s", refused.Code, refused.Message)
		}
		return aws.Credentials{}, fmt.Errorf("AWS answers %s", response.Status)
	}
	var got answer
	if err := xml.Unmarshal(text, &got); err != nil {
		return aws.Credentials{}, fmt.Errorf("read the answer of AWS: %w", err)
	}
	granted := got.Assumed
	if as == nil {
		granted = got.WebIdentity
	}
	if granted.AccessKeyID == "" {
		return aws.Credentials{}, errors.New("the answer of AWS has no credentials")
	}
	return aws.Credentials{AccessKeyID: granted.AccessKeyID, SecretAccessKey: granted.SecretAccessKey, SessionToken: granted.SessionToken}, nil
}

// sign makes a token: the URL of a request that EKS sends within a minute, for the cluster that a header names.
func (s sts) sign(ctx context.Context, as aws.Credentials, cluster string) (string, error) {
	query := url.Values{"Action": {"GetCallerIdentity"}, "Version": {"2011-06-15"}, "X-Amz-Expires": {"60"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.endpoint+"/?"+query.Encode(), nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("x-k8s-aws-id", cluster)
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, as, request, hash(""), service, s.region, time.Now())
	if err != nil {
		return "", err
	}
	return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(signed)), nil
}

func hash(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

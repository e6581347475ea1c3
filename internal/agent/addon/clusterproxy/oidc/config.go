package oidc

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/reach/access"
)

const (
	// noPrefix is the prefix that stands for none, as for the API server of Kubernetes.
	noPrefix = "-"
	// longestTTL is how long it may take at most until a token that its issuer, or the cluster, has revoked counts no more.
	longestTTL = 5 * time.Minute
	defaultTTL = 10 * time.Second
)

// algorithms are those that a token may be signed with: all of them take a key that only the issuer has.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512}

// Config says which tokens of an OIDC issuer are of users of a cluster, and who these are there. Its fields mean what the flags of the
// API server of Kubernetes mean that are named so.
type Config struct {
	// IssuerURL is that of the issuer, which starts with https://.
	IssuerURL string `json:"issuerURL"`
	// ClientID is the audience that a token has to have.
	ClientID string `json:"clientID"`
	// UsernameClaim has the name of the user; sub by default.
	UsernameClaim string `json:"usernameClaim,omitempty"`
	// UsernamePrefix comes before the name; the URL of the issuer and # by default. "-" is none.
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	// GroupsClaim has the groups of the user, as a list or as one; by default users have none.
	GroupsClaim string `json:"groupsClaim,omitempty"`
	// GroupsPrefix comes before each of them; by default there is none.
	GroupsPrefix string `json:"groupsPrefix,omitempty"`
	// ReservedNamePrefixes start names that no user and no group has, with its prefix; [system:] by default.
	ReservedNamePrefixes []string `json:"reservedNamePrefixes,omitempty"`
	// SigningAlgs are the algorithms that a token may be signed with; [RS256] by default.
	SigningAlgs []string `json:"signingAlgs,omitempty"`
	// RequiredClaims are claims that a token has to have, with their values.
	RequiredClaims map[string]string `json:"requiredClaims,omitempty"`
	// TokenReviewCacheTTL is how long it counts what has been found out about a token; 10 s by default.
	TokenReviewCacheTTL *metav1.Duration `json:"tokenReviewCacheTTL,omitempty"`

	// CA has the CAs, in PEM, that the issuer is verified by; empty for those of the system.
	CA []byte `json:"-"`
}

// Parse reads a Config in YAML, and fills in the defaults. The errors name the field.
func Parse(text string, ca []byte) (*Config, error) {
	c := &Config{}
	if err := yaml.UnmarshalStrict([]byte(text), c); err != nil {
		return nil, err
	}
	c.CA = ca
	c.complete()
	return c, c.validate()
}

func (c *Config) complete() {
	if c.UsernameClaim == "" {
		c.UsernameClaim = "sub"
	}
	switch c.UsernamePrefix {
	case "":
		c.UsernamePrefix = c.IssuerURL + "#"
	case noPrefix:
		c.UsernamePrefix = ""
	}
	if c.GroupsPrefix == noPrefix {
		c.GroupsPrefix = ""
	}
	if c.ReservedNamePrefixes == nil {
		c.ReservedNamePrefixes = []string{"system:"}
	}
	// Who has such a name is a user of the hub, or one of its groups.
	c.ReservedNamePrefixes = append(c.ReservedNamePrefixes, access.Prefix)
	if len(c.SigningAlgs) == 0 {
		c.SigningAlgs = []string{oidc.RS256}
	}
	if c.TokenReviewCacheTTL == nil {
		c.TokenReviewCacheTTL = &metav1.Duration{Duration: defaultTTL}
	}
}

func (c *Config) validate() error {
	issuer, err := url.Parse(c.IssuerURL)
	if err != nil || issuer.Scheme != "https" || issuer.Host == "" || issuer.User != nil || issuer.RawQuery != "" || issuer.Fragment != "" {
		return fmt.Errorf("issuerURL: %q is not the URL of an issuer; write it as https://HOST/PATH, as the claim iss of its tokens has it",
			c.IssuerURL)
	}
	if c.ClientID == "" {
		return errors.New("clientID is missing; write the ID by which the issuer knows the client, which the claim aud of its tokens has")
	}
	for _, algorithm := range c.SigningAlgs {
		if !slices.Contains(algorithms, algorithm) {
			return fmt.Errorf("signingAlgs: %q is not one that tokens may be signed with; use some of %s", algorithm, strings.Join(algorithms, ", "))
		}
	}
	if slices.Contains(c.ReservedNamePrefixes, "") {
		return errors.New("reservedNamePrefixes: an empty one begins every name; leave it out")
	}
	if ttl := c.TokenReviewCacheTTL.Duration; ttl < 0 || ttl > longestTTL {
		return fmt.Errorf("tokenReviewCacheTTL: %s is not a time from 0s to %s", ttl, longestTTL)
	}
	if len(c.CA) > 0 {
		if _, err := cert.ParseCertsPEM(c.CA); err != nil {
			return fmt.Errorf("the CA is not one or more certificates in PEM: %w", err)
		}
	}
	return nil
}

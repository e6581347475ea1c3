package backup

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A backup says which files of users a hub needs besides, and by what Secrets are encrypted, without any of the keys.
func TestFilesThatABackupLacks(t *testing.T) {
	t.Parallel()
	encryption := filepath.Join(t.TempDir(), "encryption.yaml")
	content := `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: key1, secret: c2VjcmV0IG9mIHRoZSBodWI=}]}
  - secretbox: {keys: [{name: key2, secret: YW5vdGhlciBzZWNyZXQ=}]}
  - identity: {}
- resources: [configmaps]
  providers: [{aescbc: {keys: [{name: key1, secret: c2VjcmV0IG9mIHRoZSBodWI=}]}}]
`
	if err := os.WriteFile(encryption, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		supplied  []File
		providers []string
	}{
		"none":             {},
		"encryption":       {[]File{{EncryptionFlag, encryption}}, []string{"aescbc", "secretbox"}},
		"a missing file":   {[]File{{EncryptionFlag, missing}}, nil},
		"a CA of the user": {[]File{{"apiserver.caFile", encryption}, {"apiserver.caKeyFile", missing}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t)
			s.Supplied = test.supplied
			description, err := Read(t.Context(), bytes.NewReader(written(t, s)), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(description.Lacks, test.supplied) || !slices.Equal(description.Encryption, test.providers) {
				t.Errorf("the backup lacks %v, encrypted by %q; want %v and %q", description.Lacks, description.Encryption, test.supplied,
					test.providers)
			}
		})
	}
}

package backup

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// A backup is read with the passphrase that it is encrypted by, and with none if it is not encrypted.
func TestDecrypt(t *testing.T) {
	t.Parallel()
	const content, passphrase = "a backup", "correct horse"
	var encrypted bytes.Buffer
	w, err := Encrypt(&encrypted, passphrase)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ file, passphrase, refusal string }{
		"encrypted":                           {file: encrypted.String(), passphrase: passphrase},
		"encrypted, without a passphrase":     {file: encrypted.String(), refusal: "is encrypted; give its passphrase by --passphrase-file"},
		"not encrypted":                       {file: content},
		"not encrypted, with a passphrase":    {file: content, passphrase: passphrase, refusal: "is not encrypted"},
		"shorter than the mark of encryption": {file: "a", passphrase: passphrase, refusal: "is not encrypted"},
	} {
		r, err := Decrypt(strings.NewReader(test.file), test.passphrase)
		if err != nil {
			if test.refusal == "" || !strings.Contains(err.Error(), test.refusal) {
				t.Errorf("%s: error %q, want %q", name, err, test.refusal)
			}
			continue
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != content || test.refusal != "" {
			t.Errorf("%s: %q, %v; want refusal %q", name, got, err, test.refusal)
		}
	}
}

package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
)

// encryptedBy is how a file starts that age has encrypted (https://age-encryption.org/v1).
var encryptedBy = []byte("age-encryption.org/")

// Encrypt returns a writer that encrypts with a passphrase what is written to it, into w. Its Close is what completes it.
func Encrypt(w io.Writer, passphrase string) (io.WriteCloser, error) {
	recipient, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return nil, err
	}
	return age.Encrypt(w, recipient)
}

// Decrypt returns a reader of a backup, which is encrypted if and only if there is a passphrase: who gives one relies on it that nobody
// without it has written the backup.
func Decrypt(r io.Reader, passphrase string) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	start, err := buffered.Peek(len(encryptedBy))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch encrypted := bytes.Equal(start, encryptedBy); {
	case !encrypted && passphrase != "":
		return nil, errors.New("it is not encrypted, so anybody may have written it; leave out --passphrase-file if you trust it")
	case !encrypted:
		return buffered, nil
	case passphrase == "":
		return nil, errors.New("the backup is encrypted; give its passphrase by --passphrase-file")
	}
	identity, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, err
	}
	decrypted, err := age.Decrypt(buffered, identity)
	if err != nil {
		return nil, fmt.Errorf("decrypt the backup with the passphrase of --passphrase-file: %w", err)
	}
	return decrypted, nil
}

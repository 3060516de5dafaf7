// Package credential obtains credentials that change: tokens of OAuth 2.0, tokens in files, client
// certificates and authorities. Its errors contain no credentials and no text of a server.
package credential

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Kubeconfig writes a kubeconfig file of the name for the configuration, or writes it anew, and returns its path.
func (c *Cluster) Kubeconfig(name string, cfg *rest.Config) (string, error) {
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	kubeconfig.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken, ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	kubeconfig.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "user"}
	kubeconfig.CurrentContext = "test"
	dir := filepath.Join(c.Dir, "kubeconfigs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	path := filepath.Join(dir, name)
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return path, nil
}

// AdminKubeconfig is the path of an administrator's kubeconfig.
func (c *Cluster) AdminKubeconfig() string { return c.admin }

// Token asks the API server for a token of the ServiceAccount, good for a day, for the audiences; none is the API server
// itself. The ServiceAccount must be there.
func (c *Cluster) Token(ctx context.Context, namespace, account string, audiences ...string) (string, error) {
	seconds := int64(24 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds}}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: namespace}}
	if err := c.Client.SubResource("token").Create(ctx, owner, request); err != nil {
		return "", fmt.Errorf("asking for a token of ServiceAccount %s/%s: %w", namespace, account, err)
	}
	return request.Status.Token, nil
}

// ServiceAccount makes the ServiceAccount unless it is there, and returns a configuration with a token of it.
func (c *Cluster) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	err := c.Client.Create(ctx, account)
	if client.IgnoreAlreadyExists(err) != nil {
		return nil, fmt.Errorf("making ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return c.accountConfig(ctx, namespace, name)
}

// accountConfig is a configuration with a token of a ServiceAccount that is there.
func (c *Cluster) accountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	token, err := c.Token(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	cfg := rest.AnonymousClientConfig(c.env.Config)
	cfg.BearerToken = token
	cfg.QPS = -1
	return cfg, nil
}

// ServiceAccountKubeconfig is the path of a kubeconfig with a token of the ServiceAccount, which it makes unless it is
// there.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	cfg, err := c.ServiceAccount(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	return c.Kubeconfig(namespace+"."+name, cfg)
}

// User returns a configuration with a client certificate of a person of that name in those groups. What they may do is for
// RBAC to say.
func (c *Cluster) User(name string, groups ...string) (*rest.Config, error) {
	user, err := c.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		return nil, fmt.Errorf("adding user %s: %w", name, err)
	}
	cfg := user.Config()
	cfg.QPS = -1
	return cfg, nil
}

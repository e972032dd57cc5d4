package awsfake

import (
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestDeleteVersions: each version has its own answer, the default one stays, and no number is used again.
func TestDeleteVersions(t *testing.T) {
	account := New(Options{})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	client := ec2.New(ec2.Options{Region: "us-west-2", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIATEST", "x", "")})
	data := &types.RequestLaunchTemplateData{InstanceType: "t3.small"}
	_, err := client.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("demo"), LaunchTemplateData: data})
	noErr(t, err)
	for range 2 {
		_, err := client.CreateLaunchTemplateVersion(t.Context(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateName: aws.String("demo"), LaunchTemplateData: data})
		noErr(t, err)
	}
	out, err := client.DeleteLaunchTemplateVersions(t.Context(), &ec2.DeleteLaunchTemplateVersionsInput{LaunchTemplateName: aws.String("demo"), Versions: []string{"1", "3", "9"}})
	noErr(t, err)
	if len(out.SuccessfullyDeletedLaunchTemplateVersions) != 1 || *out.SuccessfullyDeletedLaunchTemplateVersions[0].VersionNumber != 3 || len(out.UnsuccessfullyDeletedLaunchTemplateVersions) != 2 {
		t.Errorf("%+v", out)
	}
	if code := out.UnsuccessfullyDeletedLaunchTemplateVersions[1].ResponseError.Code; code != types.LaunchTemplateErrorCodeLaunchTemplateVersionDoesNotExist {
		t.Errorf("%s", code)
	}
	_, err = client.ModifyLaunchTemplate(t.Context(), &ec2.ModifyLaunchTemplateInput{LaunchTemplateName: aws.String("demo"), DefaultVersion: aws.String("3")})
	wantCode(t, err, "InvalidLaunchTemplateId.VersionNotFound", "")
	_, err = client.ModifyLaunchTemplate(t.Context(), &ec2.ModifyLaunchTemplateInput{LaunchTemplateName: aws.String("demo"), DefaultVersion: aws.String("2")})
	noErr(t, err)
	out, err = client.DeleteLaunchTemplateVersions(t.Context(), &ec2.DeleteLaunchTemplateVersionsInput{LaunchTemplateName: aws.String("demo"), Versions: []string{"1", "2"}})
	noErr(t, err)
	if len(out.SuccessfullyDeletedLaunchTemplateVersions) != 1 || *out.SuccessfullyDeletedLaunchTemplateVersions[0].VersionNumber != 1 {
		t.Errorf("%+v", out)
	}
	next, err := client.CreateLaunchTemplateVersion(t.Context(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateName: aws.String("demo"), LaunchTemplateData: data})
	noErr(t, err)
	if n := *next.LaunchTemplateVersion.VersionNumber; n != 4 {
		t.Errorf("the next version has the number %d", n)
	}
}

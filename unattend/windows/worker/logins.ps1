# Replaces the keys, certificate and password by which winlab logs in to this worker and verifies it. Settings: ssh_key,
# host_key, host_key_public, former (or null), password, pfx (base64), pfx_password. At each point of this script,
# either the old password works, with the old or new certificate, or all of the new ones do: the password comes last.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

$Ssh = 'C:\ProgramData\ssh'
$Https = @{ Address = '*'; Transport = 'HTTPS' }

# A file's keys, with this one and without the former one; all others stay. A key's second word identifies it
function Get-Keys([string]$Path, [string]$Key, [string]$Former) {
    $gone = @($Key, $Former) | Where-Object { $_ } | ForEach-Object { ($_ -split ' ')[1] }
    $lines = @("$(Get-Text $Path)" -split '\r?\n' | Where-Object {
        $words = $_ -split '\s+'
        $_ -and -not ($gone | Where-Object { $words -ccontains $_ })
    })
    return (($lines + $Key) -join "`n") + "`n"
}

# If Write-Secret were interrupted, no file would be left; sshd reads the file at each login
function Set-Secret([string]$Path, [string]$Text) {
    if ((Get-Text $Path) -ceq $Text) { return }
    New-Folder (Split-Path -Parent $Path)
    Write-Secret "$Path.winlab-new" $Text
    Move-Item -LiteralPath "$Path.winlab-new" -Destination $Path -Force
}

# The bootstrap continues without OpenSSH if Windows can't get it
function Set-SshKeys {
    if (-not (Get-Service -Name 'sshd' -ErrorAction SilentlyContinue)) { return }
    # the second file is for an sshd that does not find the group of administrators
    foreach ($path in "$Ssh\administrators_authorized_keys", "$env:USERPROFILE\.ssh\authorized_keys") {
        Set-Secret $path (Get-Keys $path "$($settings.ssh_key)" "$($settings.former)")
    }
    Set-Secret "$Ssh\ssh_host_ed25519_key.pub" "$($settings.host_key_public)`n"
    Set-Secret "$Ssh\ssh_host_ed25519_key" "$($settings.host_key)"
    Write-Progressing 'sshd reads its keys'
    Restart-Service -Name 'sshd' # even if nothing changed: an earlier run may have been interrupted before this
}

# The listener takes the new certificate while it runs, and connections stay open
function Set-Certificate {
    $file = "$WinlabFolder\winrm.pfx"
    try {
        Write-SecretBytes $file ([Convert]::FromBase64String("$($settings.pfx)"))
        $secret = [System.Net.NetworkCredential]::new('', "$($settings.pfx_password)").SecurePassword
        $store = 'Cert:\LocalMachine\My'
        $certificate = Import-PfxCertificate -FilePath $file -Password $secret -CertStoreLocation $store
    } finally {
        if ([System.IO.File]::Exists($file)) { [System.IO.File]::Delete($file) }
    }
    Write-Progressing 'WinRM takes its new certificate'
    Set-WSManInstance -ResourceURI 'winrm/config/Listener' -SelectorSet $Https `
        -ValueSet @{ CertificateThumbprint = $certificate.Thumbprint } | Out-Null
    Get-ChildItem -Path 'Cert:\LocalMachine\My' |
        Where-Object { $_.Issuer -like 'CN=winlab *' -and $_.PSChildName -ne $certificate.Thumbprint } |
        Remove-Item -Force
}

Invoke-Step {
    foreach ($name in 'ssh_key', 'host_key', 'host_key_public', 'password', 'pfx', 'pfx_password') {
        if (-not "$($settings[$name])") { throw "settings.$name is missing." }
    }
    Set-SshKeys
    Set-Certificate
    $password = [System.Net.NetworkCredential]::new('', "$($settings.password)").SecurePassword
    Set-LocalUser -Name 'Administrator' -Password $password
    return @{ changed = $true }
}

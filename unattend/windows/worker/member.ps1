# Makes this node a member of an external cluster, with credentials that winlab asked for. Settings: kubeconfig,
# client_ca, configuration, name. The kubelet replaces the key in kubeconfig at once with one that stays in the node.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

$kubeconfigFile = 'C:\etc\kubernetes\kubelet.conf'
$authorityFile = 'C:\etc\kubernetes\pki\ca.crt'
$configurationFile = 'C:\var\lib\kubelet\config.yaml'
$certificates = 'C:\var\lib\kubelet\pki'

function Get-Server([string]$Text) {
    return [regex]::Match($Text, '(?m)^\s*server:\s*["'']?https://([^\s"'']+)').Groups[1].Value
}

Invoke-Step {
    if ((Get-ServiceState 'kubelet') -eq 'absent') { throw 'The kubelet is no service yet: kubelet.ps1 comes first.' }
    if ((Get-ServiceState 'containerd') -ne 'running') { throw 'containerd does not run: containerd.ps1 comes first.' }
    $kubeconfig = "$($settings.kubeconfig)"
    $server = Get-Server $kubeconfig
    if (-not $server) { throw 'settings.kubeconfig names no server.' }
    if ("$($settings.client_ca)" -notmatch 'BEGIN CERTIFICATE') { throw 'settings.client_ca is no certificate.' }
    if ("$($settings.configuration)" -notmatch '(?m)^kind:\s*"?KubeletConfiguration"?\s*$') {
        throw 'settings.configuration is no KubeletConfiguration.'
    }
    $name = [System.Net.Dns]::GetHostName()
    if ($name -ne "$($settings.name)") { throw "This is '$name', not '$($settings.name)'." }

    $joined = Test-Joined
    if ($joined) {
        $there = Get-Server (Get-Text $kubeconfigFile)
        if ($there -ne $server) { throw "'$name' is part of the cluster at '$there' already, not of '$server'." }
    }
    $changed = -not $joined -or (Get-Text $authorityFile) -cne "$($settings.client_ca)" -or
        (Get-Text $configurationFile) -cne "$($settings.configuration)"
    # stopped before anything is changed, so that the next run can complete one that was interrupted
    if ($changed) { Stop-Running 'kubelet' | Out-Null }
    if (-not $joined -and (Test-Path -LiteralPath $certificates)) {
        Write-Progressing 'removing what an unfinished join left'
        Remove-Item -LiteralPath $certificates -Recurse -Force
    }
    New-Folder (Split-Path -Parent $authorityFile), (Split-Path -Parent $configurationFile)
    Write-Text $authorityFile "$($settings.client_ca)" | Out-Null
    Write-Text $configurationFile "$($settings.configuration)" | Out-Null
    if (-not $joined) { Write-Secret $kubeconfigFile $kubeconfig } # last, because with it this is a node
    if ((Get-ServiceState 'kubelet') -ne 'running') { Start-Service -Name 'kubelet' }
    Write-Progressing "waiting for the kubelet to take its certificate"
    for ($try = 0; $try -lt 900 -and -not (Test-Joined); $try++) { Start-Sleep -Seconds 1 }
    if (-not (Test-Joined)) { throw 'The kubelet has not taken its certificate after 15 minutes: see its log.' }
    return @{ joined = $true; changed = [bool]$changed }
}

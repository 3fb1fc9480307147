# Joins the cluster with kubeadm. Settings: configuration, name. The configuration's token is on the disk only while
# kubeadm runs; only SYSTEM and Administrators can read it there. It is never an argument of a process.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

$file = "$ProgramFolder\join.yaml"
$bootstrap = 'C:\etc\kubernetes\bootstrap-kubelet.conf'
$record = "$WinlabFolder\joined.txt"

# The servers that this node has joined through: the one in its kubeconfig, and the one that winlab named, which kubeadm
# may replace with the cluster's own
function Get-Servers {
    $servers = @()
    $server = [regex]::Match("$(Get-Text 'C:\etc\kubernetes\kubelet.conf')", '(?m)^\s*server:\s*"?https://([^\s"]+)')
    if ($server.Success) { $servers += $server.Groups[1].Value }
    $noted = Get-Text $record
    if ($noted) { $servers += $noted.Trim() }
    return $servers
}

# Removes what an interrupted join left, because kubeadm's checks would fail
function Clear-HalfJoin {
    $leftovers = @(
        $bootstrap, 'C:\etc\kubernetes\kubelet.conf', 'C:\etc\kubernetes\pki\ca.crt', 'C:\var\lib\kubelet\config.yaml',
        'C:\var\lib\kubelet\kubeadm-flags.env', 'C:\var\lib\kubelet\instance-config.yaml',
        'C:\var\lib\kubelet\pki', $record
    ) | Where-Object { Test-Path -LiteralPath $_ }
    if (-not $leftovers) { return }
    Write-Progressing 'removing what an unfinished join left'
    Stop-Running 'kubelet' | Out-Null
    Remove-Item -LiteralPath $leftovers -Recurse -Force
}

Invoke-Step {
    if ((Get-ServiceState 'kubelet') -eq 'absent') { throw 'The kubelet is no service yet: kubelet.ps1 comes first.' }
    if ((Get-ServiceState 'containerd') -ne 'running') { throw 'containerd does not run: containerd.ps1 comes first.' }
    $configuration = "$($settings.configuration)"
    if ($configuration -notmatch '(?m)^kind:\s*"?JoinConfiguration"?\s*$') {
        throw 'settings.configuration is no JoinConfiguration.'
    }
    $endpoint = [regex]::Match($configuration, '(?m)^\s*apiServerEndpoint:\s*["'']?([^\s"'']+)')
    if (-not $endpoint.Success) { throw 'settings.configuration names no apiServerEndpoint.' }
    $server = $endpoint.Groups[1].Value
    $name = [System.Net.Dns]::GetHostName()
    if ($name -ne "$($settings.name)") { throw "This is '$name', not '$($settings.name)'." }

    if (Test-Joined) {
        $servers = @(Get-Servers)
        if ($servers -notcontains $server) {
            throw "'$name' has joined the cluster at '$($servers -join ', ')' already, not '$server'."
        }
        if ((Get-ServiceState 'kubelet') -ne 'running') { Start-Service -Name 'kubelet' }
        return @{ joined = $true; changed = $false }
    }
    Clear-HalfJoin
    # kubeadm looks for the kubelet there, and refuses to join without it
    $env:PATH = "$ProgramFolder;$env:PATH"
    New-Folder $WinlabFolder, (Split-Path -Parent $KubeadmLog)
    # recorded before anything is set, so that nothing is forgotten
    Write-Text $record $server | Out-Null
    $log = New-Object System.IO.StreamWriter $KubeadmLog, $true
    $log.AutoFlush = $true
    try {
        $log.WriteLine("winlab: $([DateTime]::UtcNow.ToString('s'))Z join of $server")
        Write-Secret $file $configuration
        # kubeadm does not print the token; if it ever does, it is not passed on
        Invoke-Native "$ProgramFolder\kubeadm.exe" @('join', '--config', $file, '--v=1') {
            param($line)
            $line = $line -replace '\b[a-z0-9]{6}\.[a-z0-9]{16}\b', '<token>'
            [Console]::Out.WriteLine($line)
            $log.WriteLine($line)
            $line
        } | Out-Null
    } finally {
        $log.Dispose()
        foreach ($secret in $file, $bootstrap) {
            if ([System.IO.File]::Exists($secret)) { [System.IO.File]::Delete($secret) }
        }
    }
    if (-not (Test-Joined)) { throw 'kubeadm says that the node has joined, but the kubelet has no certificate.' }
    for ($try = 0; $try -lt 60 -and (Get-ServiceState 'kubelet') -ne 'running'; $try++) { Start-Sleep -Seconds 1 }
    if ((Get-ServiceState 'kubelet') -ne 'running') { throw 'The node has joined, but the kubelet does not run.' }
    return @{ joined = $true; changed = $true }
}
